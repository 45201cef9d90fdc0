//! Every kind of fault except crashes at every point where it can happen: each hits an order, which still reaches its correct
//! end, and the audit is clean.

use faults::{Armed, FaultPoint, FaultSpec, Kind, Scope};

use crate::prelude::*;

/// Points after the commit, from where an event may go on while the fault holds its worker.
const COMMITTED: [FaultPoint; 3] =
    [FaultPoint::AfterCommitBeforePublish, FaultPoint::AfterPublishBeforeMark, FaultPoint::AfterCommitBeforeAck];

/// Each kind at this point, one after the other, each with its own product.
async fn every_kind_at(point: FaultPoint) -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants_with_faults().await?;
    participants.sell("ANOTHER", 100, 100).await?;
    for kind in point.kinds().iter().copied().filter(|kind| *kind != Kind::Crash) {
        let struck = strike(&suite, &participants, point, kind).await;
        struck.with_context(|| format!("{} at {}", kind.as_str(), point.as_str()))?;
    }
    if matches!(point, FaultPoint::HttpIn | FaultPoint::BusPublish) {
        suite.nothing_was_counted().await?;
    }
    suite.audit().await
}

async fn strike(suite: &TestSuite, participants: &Participants, point: FaultPoint, kind: Kind) -> Test {
    let sku = format!("{}-{}", point.as_str(), kind.as_str()).to_uppercase().replace('_', "-");
    participants.sell(&sku, 100, 10).await?;
    let victim = victim(participants, point);
    let mut spec = FaultSpec::new(point, kind).first(1).scope(Scope::default().sku(&sku));
    spec = if kind == Kind::Latency { spec.latency(30) } else { spec };
    let goes_on = COMMITTED.contains(&point);
    if goes_on {
        // Until the hit is recorded, so that there is a step to name it.
        suite.pause(&participants.payment, "process_payment").await?;
    }
    let armed = victim.faults.arm(spec, "test")?;
    let placing = {
        let (client, body, key) = (participants.order.client.clone(), order_of(&[(&sku, 1)], "tok_visa"), sku.clone());
        tokio::spawn(async move { client.place_until_accepted(&key, &body).await })
    };
    hit(suite, point, kind).await?;
    if goes_on {
        suite.resume(&participants.payment, "process_payment").await?;
    }
    if kind == Kind::Hang {
        hangs_until_disarmed(suite, participants, victim, &armed, &placing).await?;
    }
    let order = placing.await??;
    let expected = if kind == Kind::Decline { "COMPENSATED" } else { "COMPLETED" };
    let saga = participants.saga_becomes(&order, expected).await?;
    let left = participants.product(&sku).await?["available"].clone();
    ensure!(left == if kind == Kind::Decline { 10 } else { 9 }, "{left} of 10 are left");
    let journalled = format!("{} at {}", kind.as_str(), point.as_str());
    // A fault in a request has no saga yet, and after the last step there is nothing left to journal.
    let named = saga["steps"].as_array().into_iter().flatten().any(|step| step["fault"] == journalled.as_str());
    ensure!(named || point == FaultPoint::HttpIn, "no step names {journalled}: {saga:#}");
    // A latency may outlast a saga that goes on without the delayed worker.
    eventually(async || victim.faults.armed().is_empty()).await.context("the fault is still there")
}

/// The replica that passes the point on an order's way, with a later step that will be journalled.
fn victim(participants: &Participants, point: FaultPoint) -> &Replica {
    match point {
        FaultPoint::HttpIn => &participants.order,
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => &participants.payment,
        _ => &participants.inventory,
    }
}

/// Waits until the hit is recorded, after which the fault acts.
async fn hit(suite: &TestSuite, point: FaultPoint, kind: Kind) -> Test {
    let (point, kind) = (point.as_str(), kind.as_str());
    let hits = format!("select count(*) from saga.fault_hit where point = '{point}' and kind = '{kind}'");
    eventually(async || {
        let hits = suite.number(&hits).await?;
        ensure!(hits > 0, "{point} {kind} has not been hit");
        anyhow::Ok(())
    })
    .await
}

/// While the fault holds, this order makes no progress, and another one does.
async fn hangs_until_disarmed(
    suite: &TestSuite,
    participants: &Participants,
    victim: &Replica,
    armed: &Armed,
    placing: &tokio::task::JoinHandle<anyhow::Result<Value>>,
) -> Test {
    let point = armed.spec.point;
    if point == FaultPoint::HttpIn {
        ensure!(!placing.is_finished());
    }
    let held = point != FaultPoint::HttpIn && !COMMITTED.contains(&point);
    let open = "select count(*) from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')";
    // The relay preserves the order of its events, so behind a hanging one it holds back all.
    let others_pass = !matches!(point, FaultPoint::BusPublish | FaultPoint::AfterPublishBeforeMark);
    if others_pass {
        participants.confirmed(&[("ANOTHER", 1)]).await?;
    }
    ensure!(!held || suite.number(open).await? == 1, "nothing hangs");
    ensure!(victim.faults.disarm(armed.id), "it has ended by itself");
    Ok(())
}

cases! {
    fn every_kind_at_http_in() = every_kind_at(FaultPoint::HttpIn);
    fn every_kind_at_gateway_call() = every_kind_at(FaultPoint::GatewayCall);
    fn every_kind_at_after_charge_before_record() = every_kind_at(FaultPoint::AfterChargeBeforeRecord);
    fn every_kind_at_bus_publish() = every_kind_at(FaultPoint::BusPublish);
    fn every_kind_at_before_inbox_claim() = every_kind_at(FaultPoint::BeforeInboxClaim);
    fn every_kind_at_in_step() = every_kind_at(FaultPoint::InStep);
    fn every_kind_at_before_commit() = every_kind_at(FaultPoint::BeforeCommit);
    fn every_kind_at_after_commit_before_publish() = every_kind_at(FaultPoint::AfterCommitBeforePublish);
    fn every_kind_at_after_publish_before_mark() = every_kind_at(FaultPoint::AfterPublishBeforeMark);
    fn every_kind_at_after_commit_before_ack() = every_kind_at(FaultPoint::AfterCommitBeforeAck);
}

#[suite_tests::test]
async fn every_kind_at_between_timeout_and_compensation() -> Test {
    let tuning = Tuning { saga_deadline: Duration::from_millis(700), ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 100).await?;
    suite.pause(&participants.payment, "process_payment").await?;
    let point = FaultPoint::BetweenTimeoutAndCompensation;
    for kind in point.kinds().iter().copied().filter(|kind| *kind != Kind::Crash) {
        // The detector that finds the saga.
        let detectors = [&participants.order, &participants.inventory, &participants.payment];
        for replica in detectors {
            let spec = FaultSpec::new(point, kind).first(1);
            replica.faults.arm(if kind == Kind::Latency { spec.latency(30) } else { spec }, "test")?;
        }
        let order = participants.place(&[("A", 1)], "tok_visa").await?;
        eventually(async || detectors.iter().any(|r| r.faults.hits().contains_key(&(point, kind)))).await?;
        // A hanging detector blocks nothing else: the order is cancelled, and the other detectors go on.
        participants.saga_becomes(&order, "COMPENSATED").await?;
        for replica in detectors {
            replica.faults.disarm_all();
        }
    }
    suite.resume(&participants.payment, "process_payment").await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn only_impossible_faults_are_refused() -> Test {
    let suite = TestSuite::new().await?;
    let inventory = suite.start_with(INVENTORY, faults::Faults::armable(), "").await?;
    for point in FaultPoint::ALL {
        for kind in Kind::ALL {
            let mut body = json!({"point": point.as_str(), "kind": kind.as_str(), "scope": {"sku": "NOBODY"}});
            if kind == Kind::Latency {
                body["latency_ms"] = 5.into();
            }
            let status = inventory.client.post("/api/admin/faults", &body).await?.status;
            ensure!(status == if point.can(kind) { 201 } else { 422 }, "{body}: {status}");
        }
    }
    Ok(())
}
