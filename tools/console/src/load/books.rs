//! What the suite's database says of the orders of a load: how each one ended, and when.

use std::{collections::HashMap, time::Duration};

use sqlx::PgConnection;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::life::{End, Life};

/// How many orders are asked for at once.
const PAGE: usize = 5_000;
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, sqlx::FromRow)]
struct Entry {
    order_id: Uuid,
    order_status: String,
    saga_status: Option<String>,
    failed_at_step: Option<String>,
    started_at: Option<OffsetDateTime>,
    completed_at: Option<OffsetDateTime>,
}

/// Looks all acknowledged orders up, also those whose end was seen: an end that does not last is none. Waits for
/// those that have not ended, `settle` at most.
pub(super) async fn look_up(
    connection: &mut PgConnection,
    lives: &mut [Life],
    settle: Duration,
) -> Result<(), sqlx::Error> {
    let limit = Instant::now() + settle;
    let mut open: Vec<usize> = (0..lives.len()).filter(|&n| lives[n].order_id.is_some()).collect();
    loop {
        for page in open.chunks(PAGE) {
            look_up_page(connection, lives, page).await?;
        }
        open.retain(|&n| !lives[n].end.is_good());
        if open.is_empty() || Instant::now() >= limit {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
}

async fn look_up_page(connection: &mut PgConnection, lives: &mut [Life], page: &[usize]) -> Result<(), sqlx::Error> {
    let ids: Vec<Uuid> = page.iter().filter_map(|&n| lives[n].order_id).collect();
    let entries: Vec<Entry> = sqlx::query_as(
        "select o.order_id, o.status as order_status, s.status as saga_status,
            s.failed_at_step, s.started_at, s.completed_at
        from orders.customer_order o
        left join saga.saga_instance s using (saga_id)
        where o.order_id = any($1)",
    )
    .bind(&ids)
    .fetch_all(connection)
    .await?;
    let mut entries: HashMap<Uuid, Entry> = entries.into_iter().map(|entry| (entry.order_id, entry)).collect();
    for &n in page {
        let life = &mut lives[n];
        match life.order_id.and_then(|order_id| entries.remove(&order_id)) {
            Some(entry) => enter(life, entry),
            None => life.end = End::Lost,
        }
    }
    Ok(())
}

fn enter(life: &mut Life, entry: Entry) {
    let saga = entry.saga_status.as_deref().unwrap_or("missing");
    life.end = End::of(&entry.order_status, saga, entry.failed_at_step.as_deref(), life.cancelled_by_customer);
    life.started_at = entry.started_at;
    life.ended_at = entry.completed_at;
}
