//! A crash at every point, in the real programs: the process aborts, is started again, and the order reaches its end.

use faults::FaultPoint;

use crate::prelude::*;

async fn crash_at(point: FaultPoint) -> Test {
    let times_out = point == FaultPoint::BetweenTimeoutAndCompensation;
    let mut settings = vec![("FAULTS_ENABLED", "true"), ("TIMEOUT_CHECK_EVERY", "200ms"), ("RECONCILE_EVERY", "1s")];
    if times_out {
        settings.push(("SAGA_DEADLINE", "500ms"));
    }
    let suite = TestSuite::new().await?;
    let mut participants = Running::participants(&suite, &settings).await?;
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
    eventually(async || !participants[victim].process.is_running()).await.context("the process did not crash")?;
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
    order.until_items(&format!("/api/sagas?status={status}"), 1).await?;
    let hits = suite.number("select count(*) from saga.fault_hit where kind = 'crash'").await?;
    ensure!(hits == 1, "the crash was written down {hits} times");
    suite.audit().await
}

cases! {
    fn a_crash_at_http_in() = crash_at(FaultPoint::HttpIn);
    fn a_crash_at_gateway_call() = crash_at(FaultPoint::GatewayCall);
    fn a_crash_at_after_charge_before_record() = crash_at(FaultPoint::AfterChargeBeforeRecord);
    fn a_crash_at_bus_publish() = crash_at(FaultPoint::BusPublish);
    fn a_crash_at_before_inbox_claim() = crash_at(FaultPoint::BeforeInboxClaim);
    fn a_crash_at_in_step() = crash_at(FaultPoint::InStep);
    fn a_crash_at_before_commit() = crash_at(FaultPoint::BeforeCommit);
    fn a_crash_at_after_commit_before_publish() = crash_at(FaultPoint::AfterCommitBeforePublish);
    fn a_crash_at_after_publish_before_mark() = crash_at(FaultPoint::AfterPublishBeforeMark);
    fn a_crash_at_after_commit_before_ack() = crash_at(FaultPoint::AfterCommitBeforeAck);
    fn a_crash_between_timeout_and_compensation() = crash_at(FaultPoint::BetweenTimeoutAndCompensation);
}
