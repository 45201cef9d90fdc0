//! 15: an order is cancelled while inventory and the gateway are down. The due undos stay visible until they are confirmed, and
//! no attempt is counted meanwhile. If a participant's undo fails in every attempt, the saga is FAILED until the dead letter is
//! replayed. Only Judy's saga fails: the fault hits her refund only.

use anyhow::Context;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{FaultSpec, NewOrder, PAYMENT, Scope},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product, of which Ivan and Judy buy one each", 10, 9_900).await?;
    let ivan = run.place(&NewOrder::of("ivan", &sku, 1, "tok_visa")).await?;
    let judy = run.place(&NewOrder::of("judy", &sku, 1, "tok_visa")).await?;
    run.claim_confirmed(ivan.order_id).await?;
    run.claim_confirmed(judy.order_id).await?;

    run.step("Inventory and the gateway are stopped, and Ivan cancels").await;
    run.stop("inventory").await?;
    run.stop("gateway_simulator").await?;
    run.cancel(ivan.order_id, "changed his mind").await?;
    let due = run.suite.saga(ivan.saga_id).await?.context("the saga is gone")?;
    run.claim_is("the saga is COMPENSATING", due.status.as_str(), "COMPENSATING");
    run.claim_is("both undos are due", due.receipts_due, ["inventory", "payment"]);
    run.note(&run.suite.explain(ivan.order_id).await?.summary);
    run.claim_payment("his payment is still captured", ivan.order_id, "CAPTURED").await?;

    run.step("Inventory comes back").await;
    run.start("inventory").await?;
    let claim = "the stock is released, the refund is still due";
    run.claim_saga(claim, ivan.saga_id, |saga| saga.receipts_due == ["payment"]).await?;
    run.claim_stock(&sku, 9, 1).await?;

    run.step("The gateway comes back").await;
    run.start("gateway_simulator").await?;
    run.claim_undone(ivan.order_id).await?;

    run.step("With shorter limits: payment's refund for Judy fails each time").await;
    let short_limits = [("COMPENSATION_DEADLINE", "100ms"), ("COMPENSATION_CHECK_EVERY", "200ms")];
    run.restart_with("order", &short_limits).await?;
    let single_attempt = "refund_payment.attempts=1,refund_payment.window=100,refund_payment.min_calls=100";
    run.restart_with("payment", &[("RESILIENCE", single_attempt)]).await?;
    run.expect_dead_letters(PAYMENT);
    let scope = Some(Scope { order_id: Some(judy.order_id), step: Some("refund_payment".to_owned()), sku: None });
    run.arm(PAYMENT, FaultSpec { scope, ..FaultSpec::new("in_step", "error") }).await?;
    run.cancel(judy.order_id, "changed her mind").await?;
    let claim = "the compensation is retried, then the saga is FAILED";
    let saga = run.claim_saga(claim, judy.saga_id, |saga| saga.status == "FAILED").await?;
    run.claim_is("after five attempts", saga.compensation_attempts, 5);
    run.claim_is("the due undo stays recorded", saga.receipts_due, ["payment"]);
    run.note(&run.suite.explain(judy.order_id).await?.summary);

    run.step("The cause is removed, and payment's dead letter is replayed").await;
    run.disarm(PAYMENT).await?;
    let letters = run.suite.pending_dead_letters(PAYMENT).await?;
    let first =
        letters.iter().find(|letter| letter.saga_id == Some(judy.saga_id)).context("there is no dead letter")?;
    let replayed = run.suite.replay(PAYMENT, first.id, "the cause is gone").await?;
    run.claim_is("one of its dead letters is RESOLVED", replayed.status.as_str(), "RESOLVED");
    let claim = "the last undo confirmation makes the saga COMPENSATED, without a resume";
    run.claim_saga(claim, judy.saga_id, |saga| saga.status == "COMPENSATED").await?;
    run.resolve_dead_letters(PAYMENT).await?;
    run.restart("order").await?;
    run.restart("payment").await?;
    run.claim_undone(judy.order_id).await?;
    run.claim_stock(&sku, 10, 0).await
}
