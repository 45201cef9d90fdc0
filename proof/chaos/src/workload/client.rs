//! The life of one client: one key, requests until there is an answer, perhaps a cancellation.

use std::{sync::Arc, time::Duration};

use rand::Rng;
use serde_json::json;
use uuid::Uuid;

use super::{Pressure, Wanted};
use crate::{
    history::{Conduct, History, Record},
    rest::Answer,
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
        customer_id: wanted.customer_id.clone(),
        conduct: wanted.conduct,
        payment_method: wanted.payment_method.to_owned(),
        due_ms,
        requests: 0,
        acknowledged: Vec::new(),
        acknowledged_ms: None,
        refused: None,
        has_to_be_confirmed: wanted.has_to_be_confirmed(),
        wants_to_cancel: wanted.cancels_after.is_some(),
        cancelled: false,
    };
    let orders = order_urls(&stage);
    place(&stage, &orders, &pressure, &wanted, &history, &mut record).await;
    if let (Some(after), Some(order_id)) = (wanted.cancels_after, record.acknowledged.first().copied()) {
        tokio::time::sleep(after).await;
        record.cancelled = cancel(&stage, &orders, &pressure, wanted.first_replica, order_id).await;
    }
    history.add(record);
}

fn order_urls(stage: &Stage) -> Vec<String> {
    stage.replicas_of(contracts::ORDER).iter().map(|replica| replica.url.clone()).collect()
}

async fn place(
    stage: &Stage,
    orders: &[String],
    pressure: &Pressure,
    wanted: &Wanted,
    history: &History,
    record: &mut Record,
) {
    if matches!(wanted.conduct, Conduct::HangsUp | Conduct::WalksAway) {
        record.requests += 1;
        let request = stage.rest.place(&orders[wanted.first_replica % orders.len()], &wanted.key, &wanted.body);
        // Dropping the request closes its connection.
        if let Ok(Ok(answer)) = tokio::time::timeout(wanted.hangs_up_after, request).await {
            take(&answer, history, record);
        }
    }
    if wanted.conduct == Conduct::Doubles {
        record.requests += 2;
        let send = |place: usize| stage.rest.place(&orders[place % orders.len()], &wanted.key, &wanted.body);
        let (one, other) = tokio::join!(send(wanted.first_replica), send(wanted.first_replica + 1));
        one.iter().chain(&other).for_each(|answer| take(answer, history, record));
    }
    let mut pause = FIRST_PAUSE;
    let mut replica = wanted.first_replica;
    while wanted.conduct.insists() && record.acknowledged.is_empty() && record.refused.is_none() {
        if pressure.is_hopeless() {
            return;
        }
        record.requests += 1;
        if let Ok(answer) = stage.rest.place(&orders[replica % orders.len()], &wanted.key, &wanted.body).await {
            take(&answer, history, record);
        }
        if record.acknowledged.is_empty() && record.refused.is_none() {
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            replica += 1;
        }
    }
}

/// 409 says that another request with this key is in flight, 503 and the like that it may be answered later.
fn take(answer: &Answer, history: &History, record: &mut Record) {
    match answer.status {
        200 | 201 => {
            let order_id = answer.body["order_id"].as_str().and_then(|id| id.parse::<Uuid>().ok());
            let Some(order_id) = order_id else { return };
            if !record.acknowledged.contains(&order_id) {
                record.acknowledged.push(order_id);
            }
            record.acknowledged_ms.get_or_insert(history.now_ms());
        }
        408 | 409 | 425 | 429 => {}
        400..=499 => record.refused = Some(answer.status),
        _ => {}
    }
}

/// True when the client was told that its order is cancelled.
async fn cancel(stage: &Stage, orders: &[String], pressure: &Pressure, first: usize, order_id: Uuid) -> bool {
    let mut pause = FIRST_PAUSE;
    let mut replica = first;
    while !pressure.is_hopeless() {
        let url = format!("{}/api/orders/{order_id}/cancel", orders[replica % orders.len()]);
        match stage.rest.post(&url, &json!({"reason": "changed my mind"})).await {
            Ok(answer) if matches!(answer.status, 200 | 202) => return true,
            Ok(answer) if (400..500).contains(&answer.status) && !matches!(answer.status, 408 | 409 | 429) => {
                return false;
            }
            _ => tokio::time::sleep(jittered(pause)).await,
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
