//! Looks the orders of a load up in the suite's database: how each one ended, and when.

use std::{collections::HashMap, time::Duration};

use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::client::{End, OrderResult};
use crate::audit;

const PAGE: usize = 5_000;
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, sqlx::FromRow)]
struct OrderRow {
    order_id: Uuid,
    order_status: String,
    saga_status: Option<String>,
    failed_at_step: Option<String>,
    started_at: Option<OffsetDateTime>,
    completed_at: Option<OffsetDateTime>,
}

/// Looks up all acknowledged orders, also those that the client saw ended: the end has to last. Waits for the others, and for a
/// database that fails, at most `settle`.
pub(super) async fn look_up(database_url: &str, results: &mut [OrderResult], settle: Duration) -> anyhow::Result<()> {
    let limit = Instant::now() + settle;
    let mut open: Vec<usize> = (0..results.len()).filter(|&n| results[n].order_id.is_some()).collect();
    loop {
        let looked_up = look_up_once(database_url, results, &open).await;
        if looked_up.is_ok() {
            open.retain(|&n| !results[n].end.is_good());
        }
        if open.is_empty() || Instant::now() >= limit {
            return looked_up;
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn look_up_once(database_url: &str, results: &mut [OrderResult], open: &[usize]) -> anyhow::Result<()> {
    let mut connection = audit::connect_database(database_url).await?;
    for page in open.chunks(PAGE) {
        look_up_page(&mut connection, results, page).await?;
    }
    Ok(connection.close().await?)
}

async fn look_up_page(connection: &mut PgConnection, results: &mut [OrderResult], page: &[usize]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = page.iter().filter_map(|&n| results[n].order_id).collect();
    let query = sqlx::query_as(
        "select o.order_id, o.status as order_status, s.status as saga_status,
            s.failed_at_step, s.started_at, s.completed_at
        from orders.customer_order o
        left join saga.saga_instance s using (saga_id)
        where o.order_id = any($1)",
    );
    let rows: Vec<OrderRow> = query.bind(&ids).fetch_all(connection).await?;
    let mut rows: HashMap<Uuid, OrderRow> = rows.into_iter().map(|row| (row.order_id, row)).collect();
    for &n in page {
        let result = &mut results[n];
        match result.order_id.and_then(|order_id| rows.remove(&order_id)) {
            Some(row) => {
                let saga = row.saga_status.as_deref().unwrap_or("missing");
                let failed_at = row.failed_at_step.as_deref();
                result.end = End::of(&row.order_status, saga, failed_at, result.cancelled_by_customer);
                (result.started_at, result.ended_at) = (row.started_at, row.completed_at);
            }
            None => result.end = End::Lost,
        }
    }
    Ok(())
}
