//! What has happened to an order: refusals, late steps, faults on purpose; and orders that wait for nothing.
//!
//! Not audited: what is looked at is what an order tells of itself.

use anyhow::ensure;
use serde_json::json;
use suite_tests::{Stage, Tuning};

use super::{explained, finding, found, kinds, says};
use crate::Test;

#[tokio::test]
async fn a_completed_order_waits_for_nothing() -> Test {
    let (_stage, suite) = Stage::selling(100, 1_000).await?;
    let placed = suite.confirmed(&[("A", 1)]).await?;
    let explanation = testkit::eventually(super::LIMIT, async || {
        let explanation = explained(&suite.order, &placed).await?;
        // The order's last event may still be on its way, though nobody waits for it.
        ensure!(kinds(&explanation).is_empty(), "{explanation:#}");
        anyhow::Ok(Some(explanation))
    })
    .await?;
    ensure!(explanation["saga_status"] == "COMPLETED" && explanation["order_status"] == "CONFIRMED");
    for nothing in ["since", "deadline", "at_deadline"] {
        ensure!(explanation[nothing].is_null(), "{explanation:#}");
    }
    ensure!(explanation["waiting_for"] == json!([]), "{explanation:#}");
    ensure!(explanation["summary"].as_str().is_some_and(|s| s.contains("confirmed")), "{explanation:#}");
    Ok(())
}

#[tokio::test]
async fn inventory_refused_because_there_is_not_enough() -> Test {
    let (_stage, suite) = Stage::selling(100, 1_000).await?;
    let placed = suite.place(&[("A", 1_001)], "tok_visa").await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    let (explanation, refused) = found(&suite.order, &placed, "refused").await?;
    says(&refused, &["reserve_stock of inventory refused"])?;
    ensure!(explanation["waiting_for"] == json!([]), "{explanation:#}");
    ensure!(explanation["summary"].as_str().is_some_and(|s| s.contains("everything is undone")), "{explanation:#}");
    Ok(())
}

#[tokio::test]
async fn the_card_was_declined() -> Test {
    let (_stage, suite) = Stage::selling(100, 1_000).await?;
    let placed = suite.place(&[("A", 1)], "tok_insufficient_funds").await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    let (explanation, refused) = found(&suite.order, &placed, "refused").await?;
    says(&refused, &["process_payment of payment refused: declined: insufficient_funds"])?;
    ensure!(finding(&explanation, "dead_letter").is_none(), "{explanation:#}");
    Ok(())
}

#[tokio::test]
async fn a_step_came_too_late() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    suite.saga_becomes(&placed, "IN_PROGRESS").await?;
    ensure!(suite.cancel(&placed).await? == 202);
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    stage.resume(&suite.payment, "process_payment").await?;
    let (_, late) = found(&suite.order, &placed, "came_too_late").await?;
    says(&late, &["process_payment of payment came too late and changed nothing"])?;
    ensure!(late["since"].is_string() && late["remedy"].is_null(), "{late:#}");
    Ok(())
}

#[tokio::test]
async fn somebody_injected_a_fault() -> Test {
    let (_stage, suite) = Stage::faulty(Tuning::default(), 100, 1_000).await?;
    let fault = json!({"point": "in_step", "kind": "latency", "latency_ms": 500, "scope": {"step": "process_payment"}});
    suite.payment.arm(&fault).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (_, hit) = found(&suite.order, &placed, "fault_hit").await?;
    says(&hit, &["A fault was injected: latency at in_step in process_payment of payment"])?;
    ensure!(hit["since"].is_string(), "{hit:#}");
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}
