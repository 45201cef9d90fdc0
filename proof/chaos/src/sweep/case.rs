//! One crash: arm it, order until the process is gone, start it again, wait until every order has ended, audit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use contracts::ORDER;
use faults::FaultPoint;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Case, CaseReport, Shared};
use crate::stage::Replica;

const CRASH_LIMIT: Duration = Duration::from_secs(40);
const READY_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: Duration = Duration::from_secs(40);
const SETTLE_LIMIT: Duration = Duration::from_secs(40);
/// Orders that are placed at a time.
const CLIENTS: u32 = 4;

pub(super) async fn play(stage: &Shared, case: &Case) -> CaseReport {
    let mut report = CaseReport::new(case);
    let began = Instant::now();
    if let Err(error) = try_to_play(stage, case, &mut report).await {
        report.failure = Some(format!("{error:#}"));
    }
    report.took_ms = began.elapsed().as_millis();
    report
}

async fn try_to_play(stage: &Shared, case: &Case, report: &mut CaseReport) -> anyhow::Result<()> {
    let hits_before = crashes(stage, case.point).await?;
    let armed: Vec<Arc<Replica>> = case.armed_in.iter().flat_map(|service| stage.replicas_of(*service)).collect();
    for replica in &armed {
        arm(stage, case, replica).await?;
    }
    let enough = Arc::new(AtomicBool::new(false));
    let mut clients = clients(stage, case, &enough);
    let crashed = wait_for_crash(&armed).await;
    enough.store(true, Ordering::Relaxed);
    report.crashed = crashed.as_ref().map(|crashed| crashed.service.0.to_owned());
    let restarted = Instant::now();
    for replica in &armed {
        // Others of the same point may have been hit meanwhile; whatever is still armed is taken back.
        let _ = stage.rest.delete(&format!("{}/api/admin/faults", replica.url)).await;
        if !replica.program.is_running().await {
            replica.program.start().await?;
        }
    }
    stage.ready(READY_LIMIT).await?;
    while let Some(client) = clients.join_next().await {
        report.orders += client??;
    }
    report.hit_recorded = crashes(stage, case.point).await? > hits_before;
    let audit = stage.audit(SETTLE_LIMIT, false).await?;
    report.recovered_ms = restarted.elapsed().as_millis();
    ensure!(audit.clean, "the audit found violations:\n{audit}");
    ensure!(crashed.is_some(), "no process crashed within {CRASH_LIMIT:?}: nothing passes this point that often");
    ensure!(report.hit_recorded, "the crash is not in the journal of hits");
    Ok(())
}

async fn arm(stage: &Shared, case: &Case, replica: &Replica) -> anyhow::Result<()> {
    let fault = json!({
        "point": case.point.as_str(), "kind": "crash", "first": 1, "skip": case.hit - 1, "expires_in_seconds": 120,
    });
    let answer = stage.rest.post(&format!("{}/api/admin/faults", replica.url), &fault).await?;
    ensure!(answer.status == 201, "{} cannot be armed: {} {}", replica.program.name, answer.status, answer.body);
    Ok(())
}

async fn crashes(stage: &Shared, point: FaultPoint) -> anyhow::Result<i64> {
    let count = sqlx::query_scalar("select count(*) from saga.fault_hit where kind = 'crash' and point = $1");
    Ok(count.bind(point.as_str()).fetch_one(&stage.pool).await?)
}

async fn wait_for_crash(armed: &[Arc<Replica>]) -> Option<Arc<Replica>> {
    let began = Instant::now();
    while began.elapsed() < CRASH_LIMIT {
        for replica in armed {
            if !replica.program.is_running().await {
                return Some(Arc::clone(replica));
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}

/// Clients that place orders until it is enough, each until it is answered, and then cancel some of them.
fn clients(stage: &Shared, case: &Case, enough: &Arc<AtomicBool>) -> JoinSet<anyhow::Result<u32>> {
    let mut clients = JoinSet::new();
    let slow = case.point == FaultPoint::BetweenTimeoutAndCompensation;
    for client in 0..CLIENTS {
        let (stage, enough, armed_in) = (Arc::clone(stage), Arc::clone(enough), case.armed_in.clone());
        clients.spawn(async move {
            let mut placed = 0;
            while !enough.load(Ordering::Relaxed) {
                order(&stage, client, placed, slow).await?;
                placed += 1;
                // A request that all services have: the order service gets enough of its own.
                for replica in armed_in.iter().flat_map(|service| stage.replicas_of(*service)) {
                    let path = if replica.service == ORDER {
                        "orders"
                    } else if replica.gateway.is_some() {
                        "payments"
                    } else {
                        "products"
                    };
                    let _ = stage.rest.get(&format!("{}/api/{path}", replica.url)).await;
                }
                // Those that time out all at once are found by one detector.
                if slow && placed >= 12 {
                    break;
                }
            }
            Ok(placed)
        });
    }
    clients
}

async fn order(stage: &Shared, client: u32, number: u32, slow: bool) -> anyhow::Result<()> {
    let (sku, quantity, card) = match (slow, (client + number) % 8) {
        (true, _) => ("PLENTY", 1, "tok_slow"),
        (false, 0) => ("SCARCE", 2, "tok_visa"),
        (false, 1) => ("PLENTY", 1, "tok_declined"),
        (false, 2) => ("PLENTY", 1, "tok_flaky"),
        (false, _) => ("PLENTY", 1, "tok_visa"),
    };
    let body = json!({
        "customer_id": format!("customer-{client}"), "payment_method": card,
        "lines": [{"sku": sku, "quantity": quantity}],
    });
    let placed = insist(stage, &body).await?;
    if !slow && (client + number) % 8 == 3 {
        cancel(stage, &placed).await?;
    }
    Ok(())
}

async fn insist(stage: &Shared, body: &Value) -> anyhow::Result<Value> {
    let (url, key) = (&stage.replicas_of(ORDER)[0].url, Uuid::now_v7().to_string());
    let began = Instant::now();
    loop {
        match stage.rest.place(url, &key, body).await {
            Ok(answer) if matches!(answer.status, 200 | 201) => return Ok(answer.body),
            Ok(answer) if matches!(answer.status, 400..=499) && answer.status != 409 => {
                bail!("an order is refused: {} {}", answer.status, answer.body)
            }
            other if began.elapsed() > ANSWER_LIMIT => bail!("an order is not answered: {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(30)).await,
        }
    }
}

async fn cancel(stage: &Shared, order: &Value) -> anyhow::Result<()> {
    let id = order["order_id"].as_str().context("an order without an id")?;
    let url = format!("{}/api/orders/{id}/cancel", stage.replicas_of(ORDER)[0].url);
    let began = Instant::now();
    loop {
        match stage.rest.post(&url, &json!({"reason": "changed my mind"})).await {
            Ok(answer) if matches!(answer.status, 200 | 202) => return Ok(()),
            other if began.elapsed() > ANSWER_LIMIT => bail!("a cancellation is not answered: {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(30)).await,
        }
    }
}
