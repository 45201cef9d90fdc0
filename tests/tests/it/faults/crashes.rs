//! A crash at every point, in the real programs: the process aborts, is started again, and the order reaches its end.

use std::time::Duration;

use anyhow::{Context, ensure};
use faults::FaultPoint;
use serde_json::json;
use suite_tests::{Running, TestSuite, order_of};
use testkit::eventually;

use crate::Test;

const LIMIT: Duration = Duration::from_secs(30);
const WITH_FAULTS: &[(&str, &str)] =
    &[("FAULTS_ENABLED", "true"), ("TIMEOUT_CHECK_EVERY", "200ms"), ("RECONCILE_EVERY", "1s")];

async fn crash_at(point: FaultPoint, settings: &[(&str, &str)]) -> Test {
    let settings: Vec<_> = WITH_FAULTS.iter().chain(settings).copied().collect();
    let suite = TestSuite::new().await?;
    let mut participants = Running::participants(&suite, &settings).await?;
    let times_out = point == FaultPoint::BetweenTimeoutAndCompensation;
    // The one of order, inventory and payment that passes the point.
    let victim = match point {
        FaultPoint::HttpIn | FaultPoint::BetweenTimeoutAndCompensation => 0,
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => 2,
        _ => 1,
    };
    if times_out {
        participants[1..].iter_mut().for_each(|other| other.process.kill());
    }
    let fault = json!({"point": point.as_str(), "kind": "crash", "first": 1});
    participants[victim].client.post("/api/admin/faults", &fault).await?.expect(201)?;
    let (order, body) = (participants[0].client.clone(), order_of(&[("A", 1)], "tok_visa"));
    let placed = order.post("/api/orders", &body).await;
    eventually(LIMIT, async || !participants[victim].process.is_running())
        .await
        .context("the process did not crash")?;
    // At the first point the order service crashes, and its client gets no answer.
    ensure!(placed.is_err() == (point == FaultPoint::HttpIn), "{placed:?}");
    for running in &mut participants {
        if !running.process.is_running() {
            *running = Running::start(&suite, running.service, &settings).await?;
        }
    }
    let order = &participants[0].client;
    if point == FaultPoint::HttpIn {
        order.post("/api/orders", &body).await?.expect(201)?;
    }
    let status = if times_out { "COMPENSATED" } else { "COMPLETED" };
    eventually(LIMIT, async || {
        let sagas = order.get(&format!("/api/sagas?status={status}")).await?.expect(200)?;
        ensure!(sagas["items"].as_array().is_some_and(|items| items.len() == 1), "{sagas:#}");
        anyhow::Ok(())
    })
    .await?;
    let hits = suite.number("select count(*) from saga.fault_hit where kind = 'crash'").await?;
    ensure!(hits == 1, "the crash was written down {hits} times");
    suite.audit().await
}

macro_rules! crashes {
    ($($test:ident: $point:ident,)*) => {$(
        #[suite_tests::test]
        async fn $test() -> Test {
            crash_at(FaultPoint::$point, &[]).await
        }
    )*};
}

crashes! {
    a_crash_at_http_in: HttpIn,
    a_crash_at_gateway_call: GatewayCall,
    a_crash_at_after_charge_before_record: AfterChargeBeforeRecord,
    a_crash_at_bus_publish: BusPublish,
    a_crash_at_before_inbox_claim: BeforeInboxClaim,
    a_crash_at_in_step: InStep,
    a_crash_at_before_commit: BeforeCommit,
    a_crash_at_after_commit_before_publish: AfterCommitBeforePublish,
    a_crash_at_after_publish_before_mark: AfterPublishBeforeMark,
    a_crash_at_after_commit_before_ack: AfterCommitBeforeAck,
}

#[suite_tests::test]
async fn a_crash_between_timeout_and_compensation() -> Test {
    crash_at(FaultPoint::BetweenTimeoutAndCompensation, &[("SAGA_DEADLINE", "500ms")]).await
}
