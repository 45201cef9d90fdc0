//! The life of one client: one key, requests until there is an answer, perhaps a cancellation.

use std::{sync::Arc, time::Duration};

use console::suite::{Order, Suite, SuiteError};
use rand::Rng;
use uuid::Uuid;

use super::{Pressure, Wanted};
use crate::{
    history::{Conduct, History, Record},
    stage::Stage,
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A careful client does not keep an overloaded service down.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

pub(super) async fn live(
    stage: Arc<Stage>,
    history: Arc<History>,
    pressure: Arc<Pressure>,
    wanted: Wanted,
    due_ms: u64,
) {
    let mut record = Record {
        key: wanted.key.clone(),
        customer_id: wanted.order.customer_id.clone(),
        conduct: wanted.conduct,
        payment_method: wanted.order.payment_method.clone(),
        due_ms,
        requests: 0,
        acknowledged: Vec::new(),
        acknowledged_ms: None,
        refused: None,
        has_to_be_confirmed: wanted.has_to_be_confirmed(),
        wants_to_cancel: wanted.cancels_after.is_some(),
        cancelled: false,
    };
    place(&stage.suites, &pressure, &wanted, &history, &mut record).await;
    if let (Some(after), Some(order_id)) = (wanted.cancels_after, record.acknowledged.first().copied()) {
        tokio::time::sleep(after).await;
        record.cancelled = cancel(&stage.suites, &pressure, wanted.first_replica, order_id).await;
    }
    history.add(record);
}

async fn place(suites: &[Suite], pressure: &Pressure, wanted: &Wanted, history: &History, record: &mut Record) {
    let send = |replica: usize| suites[replica % suites.len()].place(&wanted.order, &wanted.key, None);
    if matches!(wanted.conduct, Conduct::HangsUp | Conduct::WalksAway) {
        record.requests += 1;
        // Dropping the request closes its connection.
        if let Ok(answer) = tokio::time::timeout(wanted.hangs_up_after, send(wanted.first_replica)).await {
            take(answer, history, record);
        }
    }
    if wanted.conduct == Conduct::Doubles {
        record.requests += 2;
        let (one, other) = tokio::join!(send(wanted.first_replica), send(wanted.first_replica + 1));
        [one, other].into_iter().for_each(|answer| take(answer, history, record));
    }
    let mut pause = FIRST_PAUSE;
    let mut replica = wanted.first_replica;
    while wanted.conduct.insists() && record.acknowledged.is_empty() && record.refused.is_none() {
        if pressure.is_hopeless() {
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

/// The status of a refusal for good. 409 says that another request with this key is in flight, 503 and the like that it may
/// be answered later.
fn refused(error: &SuiteError) -> Option<u16> {
    let status = error.status().map(|status| status.as_u16());
    status.filter(|status| (400..500).contains(status) && !matches!(status, 408 | 409 | 425 | 429))
}

/// True when the client was told that its order is cancelled.
async fn cancel(suites: &[Suite], pressure: &Pressure, first: usize, order_id: Uuid) -> bool {
    let mut pause = FIRST_PAUSE;
    let mut replica = first;
    while !pressure.is_hopeless() {
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

/// Between half the pause and all of it, so that clients do not come back all at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.5..=1.0))
}
