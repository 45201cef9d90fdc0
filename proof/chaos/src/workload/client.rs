//! One client: one idempotency key, requests until there is an answer, possibly a cancellation.

use std::{sync::Arc, time::Duration};

use console::suite::{Order, SuiteError};
use rand::Rng;
use uuid::Uuid;

use super::{PlannedOrder, Run};
use crate::history::{Conduct, History, Record};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The upper bound of the exponential backoff.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

pub(super) async fn run(run: Arc<Run>, planned: PlannedOrder, due_ms: u64) {
    let mut record = Record {
        key: planned.key.clone(),
        customer_id: planned.order.customer_id.clone(),
        conduct: planned.conduct,
        payment_method: planned.order.payment_method.clone(),
        due_ms,
        has_to_be_confirmed: planned.has_to_be_confirmed(),
        wants_to_cancel: planned.cancels_after.is_some(),
        ..Record::default()
    };
    place(&run, &planned, &mut record).await;
    if let (Some(after), Some(order_id)) = (planned.cancels_after, record.acknowledged.first().copied()) {
        tokio::time::sleep(after).await;
        record.cancelled = cancel(&run, planned.first_replica, order_id).await;
    }
    run.history.add(record);
}

async fn place(run: &Run, planned: &PlannedOrder, record: &mut Record) {
    let (suites, history) = (&run.testbed.suites, &run.history);
    let send = async |replica: usize| {
        let suite = &suites[replica % suites.len()];
        match planned.orchestrated {
            true => suite.place_orchestrated(&planned.order, &planned.key).await,
            false => suite.place(&planned.order, &planned.key, None).await,
        }
    };
    if matches!(planned.conduct, Conduct::HangsUp | Conduct::WalksAway) {
        record.requests += 1;
        // Dropping the request closes its connection.
        if let Ok(answer) = tokio::time::timeout(planned.hangs_up_after, send(planned.first_replica)).await {
            take(answer, history, record);
        }
    }
    if planned.conduct == Conduct::Doubles {
        record.requests += 2;
        let (one, other) = tokio::join!(send(planned.first_replica), send(planned.first_replica + 1));
        [one, other].into_iter().for_each(|answer| take(answer, history, record));
    }
    let mut pause = FIRST_PAUSE;
    let mut replica = planned.first_replica;
    while planned.conduct.insists() && record.acknowledged.is_empty() && record.refused.is_none() {
        if run.pressure.has_given_up() {
            return;
        }
        record.requests += 1;
        take(send(replica).await, history, record);
        if record.acknowledged.is_empty() && record.refused.is_none() {
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            replica += 1;
        }
    }
}

fn take(answer: Result<Order, SuiteError>, history: &History, record: &mut Record) {
    match answer {
        Ok(order) => {
            if !record.acknowledged.contains(&order.order_id) {
                record.acknowledged.push(order.order_id);
            }
            record.acknowledged_ms.get_or_insert(history.now_ms());
        }
        Err(error) => record.refused = refused(&error),
    }
}

/// The status of a permanent refusal. 409 means that another request with this key is in flight; after 503 and the like the
/// client retries.
fn refused(error: &SuiteError) -> Option<u16> {
    let status = error.status().map(|status| status.as_u16());
    status.filter(|status| (400..500).contains(status) && !matches!(status, 408 | 409 | 425 | 429))
}

/// Whether the cancellation was acknowledged.
async fn cancel(run: &Run, first: usize, order_id: Uuid) -> bool {
    let suites = &run.testbed.suites;
    let mut pause = FIRST_PAUSE;
    let mut replica = first;
    while !run.pressure.has_given_up() {
        match suites[replica % suites.len()].cancel(order_id, "changed my mind").await {
            Ok(()) => return true,
            Err(error) if refused(&error).is_some() => return false,
            Err(_) => tokio::time::sleep(jittered(pause)).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
        replica += 1;
    }
    false
}

/// Between half of the pause and all of it, so that clients do not retry at the same time.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.5..=1.0))
}
