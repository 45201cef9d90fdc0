//! A crash at every point, in the real programs: the process is gone as after kill -9, is started again, and
//! the order comes to its end.

use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::{INVENTORY, ORDER, PAYMENT};
use faults::FaultPoint;
use serde_json::json;
use suite_tests::{Running, Stage, order_of};
use testkit::eventually;

use crate::Test;

const LIMIT: Duration = Duration::from_secs(30);
const WITH_FAULTS: &[(&str, &str)] =
    &[("FAULTS_ENABLED", "true"), ("TIMEOUT_CHECK_EVERY", "200ms"), ("RECONCILE_EVERY", "1s")];

/// The three programs, and which of them passes the point.
async fn crash_at(point: FaultPoint, settings: &[(&str, &str)]) -> Test {
    let settings: Vec<_> = WITH_FAULTS.iter().chain(settings).copied().collect();
    let stage = Stage::new().await?;
    let mut order = Running::start(&stage, ORDER, &settings).await?;
    let mut inventory = Running::start(&stage, INVENTORY, &settings).await?;
    let mut payment = Running::start(&stage, PAYMENT, &settings).await?;
    // A service that has just started may shed the first requests.
    eventually(LIMIT, async || {
        inventory.client.create_product("A", 100, 100).await.is_ok_and(|a| matches!(a.status, 201 | 409))
    })
    .await?;
    eventually(LIMIT, async || order.client.get("/api/products/A").await.is_ok_and(|a| a.status == 200)).await?;
    let times_out = point == FaultPoint::BetweenTimeoutAndCompensation;
    let victim = match point {
        FaultPoint::HttpIn => &mut order,
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => &mut payment,
        FaultPoint::BetweenTimeoutAndCompensation => {
            payment.process.kill();
            inventory.process.kill();
            &mut order
        }
        _ => &mut inventory,
    };
    let fault = json!({"point": point.as_str(), "kind": "crash", "first": 1});
    victim.client.post("/api/admin/faults", &fault).await?.expect(201)?;
    let (client, body) = (order.client.clone(), order_of(&[("A", 1)], "tok_visa"));
    // At the first point the order service is the one that dies, and its client gets no answer.
    let placed = client.post("/api/orders", &body).await;
    let victim = match point {
        FaultPoint::HttpIn | FaultPoint::BetweenTimeoutAndCompensation => &mut order,
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => &mut payment,
        _ => &mut inventory,
    };
    eventually(LIMIT, async || !victim.process.is_running()).await.context("the process did not crash")?;
    ensure!(placed.is_err() == (point == FaultPoint::HttpIn), "{placed:?}");
    let service = victim.service;
    *victim = Running::start(&stage, service, &settings).await?;
    if times_out {
        inventory = Running::start(&stage, INVENTORY, &settings).await?;
        payment = Running::start(&stage, PAYMENT, &settings).await?;
    }
    if point == FaultPoint::HttpIn {
        order.client.post("/api/orders", &body).await?.expect(201)?;
    }
    let status = if times_out { "COMPENSATED" } else { "COMPLETED" };
    eventually(LIMIT, async || {
        let sagas = order.client.get(&format!("/api/sagas?status={status}")).await?.expect(200)?;
        ensure!(sagas["items"].as_array().is_some_and(|items| items.len() == 1), "{sagas:#}");
        anyhow::Ok(())
    })
    .await?;
    let hits = stage.number("select count(*) from saga.fault_hit where kind = 'crash'").await?;
    ensure!(hits == 1, "the crash was written down {hits} times");
    stage.audit().await?;
    // Until here all three had to be there.
    drop((order, inventory, payment));
    Ok(())
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
