//! A fault affects only what is in its scope.

use faults::{FaultPoint, FaultSpec, Kind, Scope};
use saga::Service;

use super::EVENT_POINTS;
use crate::prelude::*;

/// Alternating orders of alice and bob, so that they share batches where possible.
async fn orders_of_both(participants: &Participants) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    let (mut alices, mut bobs) = (Vec::new(), Vec::new());
    for n in 0..16 {
        let (customer, sku) = if n % 2 == 0 { ("alice", "A") } else { ("bob", "B") };
        let body = json!({"customer_id": customer, "payment_method": "tok_visa",
            "lines": [{"sku": sku, "quantity": 1}, {"sku": "SHARED", "quantity": 1}]});
        let order = participants.order.client.post("/api/orders", &body).await?.expect(201)?;
        if n % 2 == 0 { &mut alices } else { &mut bobs }.push(order);
    }
    Ok((alices, bobs))
}

async fn only_bobs_are_hit(scope: impl Fn(&Value) -> Scope, all_of_his: bool) -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants_with_faults().await?;
    for sku in ["A", "B", "SHARED"] {
        participants.sell(sku, 100, 1000).await?;
    }
    // Everything is paused until the faults are armed, so that saga and order ids can be named.
    suite.pause(&participants.inventory, "reserve_stock").await?;
    let (alices, bobs) = orders_of_both(&participants).await?;
    for point in EVENT_POINTS {
        for replica in [&participants.inventory, &participants.payment] {
            let spec = FaultSpec::new(point, Kind::Error).first(1).scope(scope(&bobs[3]));
            replica.faults.arm(spec, "test")?;
        }
    }
    suite.resume(&participants.inventory, "reserve_stock").await?;
    participants.sagas_become(alices.iter().chain(&bobs), "COMPLETED").await?;
    let hits = participants.inventory.faults.hits().values().sum::<u64>()
        + participants.payment.faults.hits().values().sum::<u64>();
    ensure!(hits >= 8, "only {hits} hits");
    let meant: Vec<Uuid> = bobs
        .iter()
        .filter(|o| all_of_his || *o == &bobs[3])
        .filter_map(|o| o["saga_id"].as_str()?.parse().ok())
        .collect();
    let touched: Vec<Option<Uuid>> =
        sqlx::query_scalar("select distinct saga_id from saga.fault_hit").fetch_all(&suite.pool).await?;
    ensure!(!touched.is_empty() && touched.iter().all(|id| id.is_some_and(|id| meant.contains(&id))), "{touched:?}");
    let strangers: Vec<String> = sqlx::query_scalar(
        "select step || ' of ' || saga_id from saga.saga_step where fault is not null and not saga_id = any($1)",
    )
    .bind(&meant)
    .fetch_all(&suite.pool)
    .await?;
    ensure!(strangers.is_empty(), "steps outside the scope name a fault: {strangers:?}");
    attempts_are_of(&suite, &meant).await?;
    suite.audit().await
}

/// Every counted failure belongs to one of these sagas.
async fn attempts_are_of(suite: &TestSuite, meant: &[Uuid]) -> Test {
    let counted: i64 = sqlx::query_scalar(
        "select count(*) from (
            select event_id from inventory.delivery_attempt union all select event_id from payment.delivery_attempt) a
        where event_id not in (select event_id from saga.saga_step where saga_id = any($1) and event_id is not null)",
    )
    .bind(meant)
    .fetch_one(&suite.pool)
    .await?;
    ensure!(counted == 0, "{counted} attempts were counted outside the scope");
    Ok(())
}

fn id(order: &Value, name: &str) -> Uuid {
    order[name].as_str().unwrap_or_default().parse().expect("an id")
}

cases! {
    fn a_customers_scope() = only_bobs_are_hit(|_| Scope::default().customer("bob"), true);
    fn a_skus_scope() = only_bobs_are_hit(|_| Scope::default().sku("B"), true);
    fn an_orders_scope() = only_bobs_are_hit(|order| Scope::default().order(id(order, "order_id")), false);
    fn a_sagas_scope() = only_bobs_are_hit(|order| Scope::default().saga(id(order, "saga_id")), false);
}

/// As long as the fault lasts, bob's order waits; alice's do not, and the affected service stays ready.
async fn lasting(point: FaultPoint, kind: Kind, at: Service) -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants_with_faults().await?;
    for sku in ["A", "B"] {
        participants.sell(sku, 100, 1000).await?;
    }
    let victim = if at == ORDER { &participants.order } else { &participants.inventory };
    victim.faults.arm(FaultSpec::new(point, kind).scope(Scope::default().sku("B")), "test")?;
    let key = json!({"customer_id": "bob", "payment_method": "tok_visa", "lines": [{"sku": "B", "quantity": 1}]});
    let bobs = participants.order.client.post("/api/orders", &key).await?.expect(201)?;
    eventually(async || !victim.faults.hits().is_empty()).await?;
    let mut not_ready = 0;
    for _ in 0..20 {
        participants.confirmed(&[("A", 1)]).await?;
        not_ready += u32::from(victim.client.get("/health/ready").await?.status != 200);
    }
    ensure!(not_ready == 0, "the service was not ready {not_ready} times");
    let waits = participants.saga(&bobs).await?;
    let stuck_before_its_commit =
        !matches!(point, FaultPoint::AfterPublishBeforeMark | FaultPoint::AfterCommitBeforePublish);
    ensure!(!stuck_before_its_commit || waits["status"] != "COMPLETED", "the fault did not last: {waits:#}");
    victim.faults.disarm_all();
    participants.saga_becomes(&bobs, "COMPLETED").await?;
    suite.nothing_was_counted().await?;
    suite.audit().await
}

cases! {
    fn a_lasting_error_at_bus_publish() = lasting(FaultPoint::BusPublish, Kind::Error, ORDER);
    fn a_lasting_loss_at_bus_publish() = lasting(FaultPoint::BusPublish, Kind::Drop, INVENTORY);
    fn a_lasting_error_at_after_publish_before_mark() =
        lasting(FaultPoint::AfterPublishBeforeMark, Kind::Error, INVENTORY);
    fn a_lasting_error_at_before_inbox_claim() = lasting(FaultPoint::BeforeInboxClaim, Kind::Error, INVENTORY);
    fn a_lasting_error_at_before_commit() = lasting(FaultPoint::BeforeCommit, Kind::Error, INVENTORY);
    fn a_lasting_error_at_after_commit_before_publish() =
        lasting(FaultPoint::AfterCommitBeforePublish, Kind::Error, INVENTORY);
    fn a_lasting_hang_in_step() = lasting(FaultPoint::InStep, Kind::Hang, INVENTORY);
    fn a_lasting_hang_at_before_commit() = lasting(FaultPoint::BeforeCommit, Kind::Hang, INVENTORY);
}
