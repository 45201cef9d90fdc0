//! 15: an order is cancelled, but inventory and the gateway are away. What is owed stays visible until it is settled, and
//! no attempt is counted meanwhile. When a participant gives up again and again the saga is FAILED, until what was given up
//! is replayed. Only Judy's saga comes to that: payment fails at her refund, and undoes other orders in no time.

use std::time::Duration;

use anyhow::Context;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::{FaultSpec, NewOrder, PAYMENT, Saga, Scope},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, of which Ivan and Judy buy one each").await;
    let sku = stage.product(10, 9_900).await?;
    let ivan = stage.place(&NewOrder::of("ivan", &sku, 1, "tok_visa")).await?;
    let judy = stage.place(&NewOrder::of("judy", &sku, 1, "tok_visa")).await?;
    let ended = stage.ended(ivan.order_id).await?;
    stage.claim_confirmed(&ended).await?;
    let ended = stage.ended(judy.order_id).await?;
    stage.claim_confirmed(&ended).await?;

    stage.step("Inventory and the gateway are stopped, and Ivan cancels").await;
    stage.stop("inventory").await?;
    stage.stop("gateway_simulator").await?;
    stage.cancel(ivan.order_id, "changed his mind").await?;
    let due = stage.suite.saga(ivan.saga_id).await?.context("the saga is gone")?;
    stage.claim_is("the saga is COMPENSATING", due.status.as_str(), "COMPENSATING");
    stage.claim_is("both undos are due", due.receipts_due, ["inventory", "payment"]);
    stage.note(&stage.suite.explain(ivan.order_id).await?.summary);
    let payment = stage.suite.payment_of(ivan.order_id).await?.map(|payment| payment.status);
    stage.claim_is("his money is still held", payment.as_deref(), Some("CAPTURED"));

    stage.step("Inventory comes back").await;
    stage.start("inventory").await?;
    let one_left = |saga: &Saga| saga.receipts_due == ["payment"];
    let released = async || Ok(stage.suite.saga(ivan.saga_id).await?.filter(one_left));
    stage.claim_soon("the stock is released, the money is still due", PATIENCE, released).await?;
    stage.claim_stock(&sku, 9, 1).await?;

    stage.step("The gateway comes back").await;
    stage.start("gateway_simulator").await?;
    let ended = stage.undone(ivan.order_id, Duration::from_secs(30)).await?;
    stage.claim_undone(&ended).await?;

    stage.step("With less patience: payment gives up each time that it is to refund Judy").await;
    let impatient = [("COMPENSATION_DEADLINE", "100ms"), ("COMPENSATION_CHECK_EVERY", "200ms")];
    stage.restart_with("order", &impatient).await?;
    let at_once = "refund_payment.attempts=1,refund_payment.window=100,refund_payment.min_calls=100";
    stage.restart_with("payment", &[("RESILIENCE", at_once)]).await?;
    stage.expect_dead_letters(PAYMENT);
    let scope = Scope { order_id: Some(judy.order_id), step: Some("refund_payment".to_owned()), ..Scope::default() };
    stage.arm(PAYMENT, FaultSpec::new("in_step", "error").scope(scope)).await?;
    stage.cancel(judy.order_id, "changed her mind").await?;
    let stuck = async || Ok(stage.suite.saga(judy.saga_id).await?.filter(|saga| saga.status == "FAILED"));
    let saga = stage.claim_soon("the saga is driven on again and again, then FAILED", PATIENCE, stuck).await?;
    stage.claim_is("after five attempts", saga.compensation_attempts, 5);
    stage.claim_is("what is due stays known", saga.receipts_due, ["payment"]);
    stage.note(&stage.suite.explain(judy.order_id).await?.summary);

    stage.step("The cause is removed, and what payment has given up is replayed").await;
    stage.disarm(PAYMENT).await?;
    let letters = stage.suite.pending_dead_letters(PAYMENT).await?;
    let first =
        letters.iter().find(|letter| letter.saga_id == Some(judy.saga_id)).context("there is no dead letter")?;
    let replayed = stage.suite.replay(PAYMENT, first.id, "the cause is gone").await?;
    stage.claim_is("one of its dead letters is RESOLVED", replayed.status.as_str(), "RESOLVED");
    let undone = async || Ok(stage.suite.saga(judy.saga_id).await?.filter(|saga| saga.status == "COMPENSATED"));
    stage.claim_soon("with the last receipt the saga is COMPENSATED, and nobody resumes it", PATIENCE, undone).await?;
    stage.no_dead_letter_left(PAYMENT).await?;
    stage.restart("order").await?;
    stage.restart("payment").await?;
    let ended = stage.undone(judy.order_id, PATIENCE).await?;
    stage.claim_undone(&ended).await?;
    stage.claim_stock(&sku, 10, 0).await
}
