//! Evidence from the database that both builds were in use: the effects of every change in `next.patch`.

use serde::Serialize;
use sqlx::PgPool;

use crate::report::Phase;

/// The phase in which one replica of inventory publishes the old version, and only newer replicas of payment read it.
pub const ONLY_NEW_READERS: &str = "old version, new readers only";
/// The last phase in which a replica of inventory has the new step.
pub const LAST_OF_NEW_STEP: &str = "side by side again";

/// Counts that prove nothing when they are zero.
#[derive(Debug, Serialize)]
pub struct Evidence {
    /// Events in the version that only the newer build reads.
    pub in_new_version: i64,
    /// Of these, events that a replica of the older build received and returned.
    pub handed_back: i64,
    /// Events in the old version that a replica of the newer build read.
    pub brought_up: i64,
    /// Events with a field unknown to the older build, in a version that it reads.
    pub with_new_field: i64,
    /// Events that the new step has applied, rather than skipped because their saga was compensating, and the rows in its new
    /// table.
    pub new_step: i64,
    pub new_rows: i64,
    /// Events that the new step has processed in the last quarter of the last phase in which a replica had it.
    pub new_step_at_last: i64,
    /// Executions of the new step that were still owed when the newer build was rolled back: how many depends on the machine's speed.
    pub given_up: i64,
    /// Of these, the ones whose event came before the last one that the step has processed.
    pub passed_over: i64,
}

/// Events in the new version that the step has not processed, including those in the outbox.
pub async fn unread(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "select (select count(*) from inventory.outbox where event_type = 'StockReserved.v2') + (
            select count(*)
            from inventory.outbox_published p
            where p.event_type = 'StockReserved.v2' and not exists (
                select from payment.inbox i where i.event_id = p.event_id and i.consumer = 'payment-process_payment'))",
    )
    .fetch_one(pool)
    .await
}

pub async fn of(pool: &PgPool, phases: &[Phase], given_up: i64) -> anyhow::Result<Evidence> {
    let count = async |query: &'static str| sqlx::query_scalar::<_, i64>(query).fetch_one(pool).await;
    let phase = |name| phases.iter().find(|phase| phase.name == name);
    let only_new_readers = phase(ONLY_NEW_READERS);
    let brought_up = sqlx::query_scalar(
        "select count(*)
        from inventory.outbox_published p
        join payment.inbox i using (event_id)
        where p.event_type = 'StockReserved.v1' and i.consumer = 'payment-process_payment'
            and i.processed_at between $1 and $2",
    )
    .bind(only_new_readers.map(|phase| phase.began))
    .bind(only_new_readers.map(|phase| phase.ended))
    .fetch_one(pool)
    .await?;
    let last = phase(LAST_OF_NEW_STEP);
    let new_step_at_last = sqlx::query_scalar(
        "select count(*) from inventory.inbox
        where consumer = 'inventory-count_sale' and processed_at between $1 and $2",
    )
    .bind(last.map(|phase| phase.ended - (phase.ended - phase.began) / 4))
    .bind(last.map(|phase| phase.ended))
    .fetch_one(pool)
    .await?;
    Ok(Evidence {
        in_new_version: count("select count(*) from inventory.outbox_published where event_type = 'StockReserved.v2'")
            .await?,
        handed_back: count(
            "select count(*) from payment.delivery_attempt
            where consumer = 'payment-process_payment' and unread_since is not null",
        )
        .await?,
        brought_up,
        with_new_field: count(
            "select count(*) from orders.outbox_published
            where event_type = 'OrderCreated.v1' and payload::jsonb -> 'total' ? 'minor_digits'",
        )
        .await?,
        new_step: count(
            "select (select count(*) from inventory.inbox where consumer = 'inventory-count_sale')
                - (select count(*) from saga.saga_step where step = 'count_sale' and status = 'SKIPPED')",
        )
        .await?,
        new_rows: count("select count(*) from inventory.sale").await?,
        new_step_at_last,
        given_up,
        passed_over: count(
            "select count(*)
            from orders.outbox_published p
            join saga.saga_step s using (saga_id)
            where p.event_type = 'OrderConfirmed.v1' and s.step = 'forgive_owed' and p.stream_sequence < (
                select max(taken.stream_sequence)
                from orders.outbox_published taken
                join inventory.inbox i using (event_id)
                where i.consumer = 'inventory-count_sale')",
        )
        .await?,
    })
}

impl Evidence {
    /// Missing evidence, in sentences.
    pub fn gaps(&self) -> Vec<String> {
        let Evidence { in_new_version, handed_back, brought_up, with_new_field, new_step, new_rows, .. } = *self;
        let counted = [
            ("event was published in the new version", in_new_version),
            ("event in the new version reached an older replica", handed_back),
            ("event in the old version was read by a newer replica", brought_up),
            ("event had the new field", with_new_field),
            ("event was applied by the new step", new_step),
            ("event was processed by the new step until its build was rolled back", self.new_step_at_last),
        ];
        let mut gaps: Vec<String> =
            counted.into_iter().filter(|(_, count)| *count == 0).map(|(what, _)| format!("no {what}")).collect();
        if new_step != new_rows {
            gaps.push(format!("the new step has applied {new_step} events and written {new_rows} rows"));
        }
        // What came after it stopped is left, however much that is. Before that only what was returned then may be.
        let passed_over = self.passed_over;
        if passed_over > new_step / 20 {
            gaps.push(format!("the new step has applied {new_step} events, and passed over {passed_over}"));
        }
        gaps
    }
}
