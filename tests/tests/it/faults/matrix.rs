//! Every kind of fault except crashes at every point where it can happen: each hits an order, which still reaches its correct
//! end, and the audit is clean.

use std::time::Duration;

use anyhow::{Context, ensure};
use faults::{Armed, FaultPoint, FaultSpec, Kind, Scope};
use serde_json::{Value, json};
use suite_tests::{Participants, Replica, TestSuite, Tuning, order_of};
use testkit::eventually;

use crate::Test;

const LIMIT: Duration = Duration::from_secs(20);

/// Points after the commit, from where an event may go on while the fault holds its worker.
const COMMITTED: [FaultPoint; 3] =
    [FaultPoint::AfterCommitBeforePublish, FaultPoint::AfterPublishBeforeMark, FaultPoint::AfterCommitBeforeAck];

/// Each kind at this point, one after the other, each with its own product.
async fn every_kind_at(point: FaultPoint) -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants_with_faults().await?;
    for kind in point.kinds().iter().copied().filter(|kind| *kind != Kind::Crash) {
        strike(&suite, &participants, point, kind)
            .await
            .with_context(|| format!("{} at {}", kind.as_str(), point.as_str()))?;
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
    eventually(LIMIT, async || {
        ensure!(victim.faults.armed().is_empty(), "the fault is still there");
        anyhow::Ok(())
    })
    .await
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
    let written = "select exists (select from saga.fault_hit where point = $1 and kind = $2)";
    eventually(LIMIT, async || {
        let hit: bool =
            sqlx::query_scalar(written).bind(point.as_str()).bind(kind.as_str()).fetch_one(&suite.pool).await?;
        ensure!(hit, "not hit");
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
        participants.sell("ANOTHER", 100, 100).await.or_else(|error| match error.to_string().contains("409") {
            true => Ok(()),
            false => Err(error),
        })?;
        let scope = order_of(&[("ANOTHER", 1)], "tok_visa");
        let other = participants.order.client.post("/api/orders", &scope).await?.expect(201)?;
        participants.saga_becomes(&other, "COMPLETED").await?;
    }
    ensure!(!held || suite.number(open).await? == 1, "nothing hangs");
    ensure!(victim.faults.disarm(armed.id), "it has ended by itself");
    Ok(())
}

macro_rules! every_kind {
    ($($test:ident: $point:ident,)*) => {$(
        #[suite_tests::test]
        async fn $test() -> Test {
            every_kind_at(FaultPoint::$point).await
        }
    )*};
}

every_kind! {
    every_kind_at_http_in: HttpIn,
    every_kind_at_gateway_call: GatewayCall,
    every_kind_at_after_charge_before_record: AfterChargeBeforeRecord,
    every_kind_at_bus_publish: BusPublish,
    every_kind_at_before_inbox_claim: BeforeInboxClaim,
    every_kind_at_in_step: InStep,
    every_kind_at_before_commit: BeforeCommit,
    every_kind_at_after_commit_before_publish: AfterCommitBeforePublish,
    every_kind_at_after_publish_before_mark: AfterPublishBeforeMark,
    every_kind_at_after_commit_before_ack: AfterCommitBeforeAck,
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
        eventually(LIMIT, async || detectors.iter().any(|r| r.faults.hits().contains_key(&(point, kind)))).await?;
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
    let inventory = suite.start_with(contracts::INVENTORY, faults::Faults::armable(), "").await?;
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
