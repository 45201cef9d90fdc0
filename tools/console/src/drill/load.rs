//! The shop's ordinary business during a drill: orders of one product at a rate, every fourth with a card without funds.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bootstrap::CancellationToken;
use sqlx::PgConnection;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use uuid::Uuid;

use crate::suite::{NewOrder, Suite};

/// An order that takes longer has been held up.
const IN_TIME: Duration = Duration::from_secs(1);
const PLACEMENT_TIMEOUT: Duration = Duration::from_secs(5);
const CUSTOMERS: [&str; 8] = ["ada", "ben", "cleo", "dara", "emil", "fay", "gus", "hana"];

/// The orders of a drill.
#[derive(Debug, Clone)]
pub(super) struct Load {
    suite: Suite,
    sku: String,
    placed: Arc<Mutex<Placed>>,
}

#[derive(Debug, Default)]
struct Placed {
    /// With good cards.
    good: Vec<Uuid>,
    declined: Vec<Uuid>,
}

impl Load {
    pub(super) fn new(suite: &Suite, sku: &str) -> Load {
        Load { suite: suite.clone(), sku: sku.to_owned(), placed: Arc::default() }
    }

    /// Places so many orders a second, until `stop`.
    pub(super) async fn run(self, rate: u32, stop: CancellationToken) {
        let mut tick = interval(Duration::from_secs(1) / rate);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut placing = JoinSet::new();
        let mut number = 0;
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            placing.spawn(self.clone().place(number));
            number += 1;
            while placing.try_join_next().is_some() {}
        }
        while placing.join_next().await.is_some() {}
    }

    /// Places so many orders, one after the other.
    pub(super) async fn place_some(&self, orders: usize) {
        for number in 0..orders {
            self.clone().place(number).await;
        }
    }

    async fn place(self, number: usize) {
        let is_good = number % 4 != 3;
        let card = if is_good { "tok_visa" } else { "tok_insufficient_funds" };
        let order = NewOrder::of(CUSTOMERS[number % CUSTOMERS.len()], &self.sku, 1, card);
        // What is not accepted is no order.
        let Ok((order, _)) = self.suite.place_surely(&order, &Uuid::now_v7().to_string(), PLACEMENT_TIMEOUT).await
        else {
            return;
        };
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if is_good { placed.good.push(order.order_id) } else { placed.declined.push(order.order_id) }
    }

    /// How many orders were placed, and how many of them have not ended as they should, in time.
    pub(super) async fn late(&self, database: &mut PgConnection) -> sqlx::Result<(usize, HashSet<Uuid>)> {
        let (good, declined) = {
            let placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
            (placed.good.clone(), placed.declined.clone())
        };
        let query = sqlx::query_scalar(
            "select business_key
            from saga.saga_instance
            where business_key = any($1 || $2)
                and (coalesce(completed_at, now()) - started_at > make_interval(secs => $3)
                    or business_key = any($1) and status = 'COMPENSATED'
                    or business_key = any($2) and status in ('COMPLETED', 'COMPENSATED')
                        and failed_at_step is distinct from 'process_payment')",
        );
        let late: Vec<Uuid> = query.bind(&good).bind(&declined).bind(IN_TIME.as_secs_f64()).fetch_all(database).await?;
        Ok((good.len() + declined.len(), late.into_iter().collect()))
    }

    /// The orders whose sagas have not ended.
    pub(super) async fn open(&self, database: &mut PgConnection) -> sqlx::Result<Vec<Uuid>> {
        let orders = {
            let placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
            [&placed.good[..], &placed.declined[..]].concat()
        };
        let query = sqlx::query_scalar(
            "select business_key
            from saga.saga_instance
            where business_key = any($1) and status not in ('COMPLETED', 'COMPENSATED')",
        );
        query.bind(orders).fetch_all(database).await
    }

    /// Waits until all orders' sagas have ended, at most this long; returns those that have not.
    pub(super) async fn wait_for_all(&self, database: &mut PgConnection, limit: Duration) -> sqlx::Result<Vec<Uuid>> {
        let end = Instant::now() + limit;
        loop {
            let open = self.open(database).await?;
            if open.is_empty() || Instant::now() >= end {
                return Ok(open);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// The orders of a product whose sagas have not ended, each with its saga.
pub(super) async fn open_orders(database: &mut PgConnection, sku: &str) -> sqlx::Result<Vec<(Uuid, Uuid)>> {
    let query = sqlx::query_as(
        "select o.order_id, o.saga_id
        from saga.saga_instance s
        join orders.customer_order o on o.order_id = s.business_key
        where s.status not in ('COMPLETED', 'COMPENSATED')
            and exists (select from orders.order_line l where l.order_id = o.order_id and l.sku = $1)",
    );
    query.bind(sku).fetch_all(database).await
}
