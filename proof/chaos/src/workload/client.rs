//! One client: one idempotency key, requests until there is an answer, possibly a cancellation.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use console::suite::{Exchange, Order, Suite, SuiteError};
use rand::Rng;
use uuid::Uuid;

use super::{PlannedOrder, Run};
use crate::history::{Conduct, History, Record};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The upper bound of the exponential backoff.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The end of the order that the status names, if it names one, and the order.
type Answer = (Option<&'static str>, Result<Order, SuiteError>);

pub(super) async fn run(run: Arc<Run>, planned: PlannedOrder, due_ms: u64) {
    let mut record = Record {
        key: planned.key.clone(),
        customer_id: planned.order.customer_id.clone(),
        conduct: planned.conduct,
        payment_method: planned.order.payment_method.clone(),
        due_ms,
        has_to_be_confirmed: planned.is_good() && !planned.orchestrated,
        has_to_be_confirmed_if_undisturbed: planned.is_good() && planned.orchestrated,
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
    let send = async |replica: usize| send_once(&suites[replica % suites.len()], planned).await;
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

async fn send_once(suite: &Suite, planned: &PlannedOrder) -> Answer {
    if !planned.orchestrated {
        return (None, suite.place(&planned.order, &planned.key, None).await);
    }
    let placed = Arc::new(OnceLock::new());
    let first = Arc::clone(&placed);
    let listener = move |exchange: &Exchange| {
        // Only the first exchange is the placement: a cancelled order is read afterwards.
        let _ = first.set(exchange.answer.as_ref().map_or(0, |(status, _)| status.as_u16()));
    };
    let suite = suite.clone().with_listener(Arc::new(listener));
    let answer = suite.place_orchestrated(&planned.order, &planned.key).await;
    (placed.get().and_then(|status| named_end(*status, answer.is_ok())), answer)
}

/// The end that the answer to an orchestrated placement names. 409 names none when another request with this key is in flight:
/// then there is no order to read.
fn named_end(status: u16, is_order: bool) -> Option<&'static str> {
    match status {
        200 | 201 => Some("CONFIRMED"),
        409 if is_order => Some("CANCELLED"),
        _ => None,
    }
}

fn take((end, answer): Answer, history: &History, record: &mut Record) {
    record.ends.extend(end);
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

/// The status of a permanent refusal. 409 means that another request with this key is in flight, because that of a cancelled
/// order is answered with the order; after 503 and the like the client retries.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_the_end_of_an_orchestrated_order() {
        assert_eq!([201, 200].map(|status| named_end(status, true)), [Some("CONFIRMED"); 2]);
        assert_eq!(named_end(409, true), Some("CANCELLED"));
        assert_eq!(named_end(409, false), None, "the key is in flight");
        assert_eq!([202, 503].map(|status| named_end(status, status == 202)), [None; 2]);
    }
}
