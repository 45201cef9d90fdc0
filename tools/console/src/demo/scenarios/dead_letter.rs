//! 7: an order is stuck, and somebody finds out why: from the healthy step over the dead letter, its inspection and a
//! rehearsal to its replay. Eleven steps, made to be told with `--pause`.

use std::time::Duration;

use anyhow::Context;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::{Breaker, DeadLetter, FaultSpec, INVENTORY, NewOrder, Order, Scope, until},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and half an hour to look around: the saga's deadline is not the point here").await;
    let sku = stage.product(20, 6_600).await?;
    stage.restart_with("order", &[("SAGA_DEADLINE", "30m")]).await?;
    let (placed, letter) = something_breaks(stage, &sku).await?;
    somebody_looks(stage, &placed, &letter).await?;
    it_is_mended(stage, &sku, &placed, &letter).await?;
    stage.restart("order").await
}

/// Steps 2 to 6: up to the dead letter.
async fn something_breaks(stage: &mut Stage, sku: &str) -> anyhow::Result<(Order, DeadLetter)> {
    stage.step("The healthy step: ten orders pass reserve_stock without anybody noticing").await;
    let healthy = stage.place_all(sku, 10, "tok_visa").await?;
    stage.claim_tally(&healthy, 10, PATIENCE).await?;
    stage.claim_stock(sku, 10, 10).await?;

    stage.step("Something breaks: whatever has this SKU cannot be reserved any more").await;
    let scope = Scope { sku: Some(sku.to_owned()), ..Scope::default() };
    stage.expect_dead_letters(INVENTORY);
    let fault = stage.arm(INVENTORY, FaultSpec::new("in_step", "error").scope(scope)).await?;

    stage.step("Nina orders one").await;
    let placed = stage.place(&NewOrder::of("nina", sku, 1, "tok_visa")).await?;

    stage.step("Inventory tries, and tries again, with a pause that grows").await;
    let retried = async || Ok(stage.suite.armed_fault(INVENTORY, fault.id).await?.filter(|f| f.hits >= 3));
    stage.claim_soon("three attempts have failed", PATIENCE, retried).await?;
    let order = stage.suite.order(placed.order_id).await?.map(|order| order.status);
    stage.claim_is("the order is PENDING", order.as_deref(), Some("PENDING"));

    stage.step("After the last attempt the event is a dead letter").await;
    let found = until(Duration::from_secs(10), async || {
        let letters = stage.suite.pending_dead_letters(INVENTORY).await?;
        Ok(letters.into_iter().find(|letter| letter.saga_id == Some(placed.saga_id)))
    });
    let letter = found.await?.context("there is no dead letter")?;
    stage.claim_is("it is PENDING", letter.status.as_str(), "PENDING");
    let breakers = stage.suite.breakers(INVENTORY).await?.map(|breakers| breakers.items).unwrap_or_default();
    let closed = breakers.iter().all(Breaker::is_closed);
    stage.claim("one bad order opens no breaker: all others go on", closed);
    Ok((placed, letter))
}

/// Steps 7 to 9: what can be found out.
async fn somebody_looks(stage: &mut Stage, placed: &Order, letter: &DeadLetter) -> anyhow::Result<()> {
    stage.step("What it tells").await;
    inspect(stage, letter);

    stage.step("What the customer's support is told").await;
    let explanation = stage.suite.explain(placed.order_id).await?;
    stage.note(&explanation.summary);
    let dead = explanation.findings.iter().find(|finding| finding.kind == "dead_letter");
    stage.claim("the explanation names the dead letter", dead.is_some());
    if let Some(dead) = dead {
        stage.note(&dead.what);
        stage.note(dead.remedy.as_ref().map_or("nothing can be done about it", |remedy| &remedy.what));
    }

    stage.step("A replay that comes too early").await;
    let early = stage.suite.replay(INVENTORY, letter.id, "maybe it works now").await?;
    stage.claim_is("it fails again, and the dead letter is PENDING as before", early.status.as_str(), "PENDING");
    stage.claim_is("one replay of three is used up", early.replay_count, 1);
    Ok(())
}

/// Steps 10 and 11: the replay, at the right time.
async fn it_is_mended(stage: &mut Stage, sku: &str, placed: &Order, letter: &DeadLetter) -> anyhow::Result<()> {
    stage.step("The cause is removed, and the replay rehearsed").await;
    stage.disarm(INVENTORY).await?;
    let rehearsal = stage.suite.rehearse_replay(INVENTORY, placed.saga_id).await?;
    let item = rehearsal.items.first().context("the rehearsal tells nothing")?;
    stage.claim_is("it would be applied", item.outcome.as_str(), "would_apply");
    stage.claim_is("and say that the stock is reserved", item.emits.join(" "), "StockReserved.v1");
    stage.claim_stock(sku, 10, 10).await?;

    stage.step("The dead letter is replayed, and the order goes on as if nothing had happened").await;
    let replayed = stage.suite.replay(INVENTORY, letter.id, "the cause is gone").await?;
    stage.claim_is("it is RESOLVED", replayed.status.as_str(), "RESOLVED");
    for action in &replayed.actions {
        let reason = action.reason.as_deref().unwrap_or("no reason");
        stage.note(&format!("audit trail: {} by {} ({reason}): {}", action.action, action.actor, action.outcome));
    }
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_confirmed(&ended).await?;
    stage.claim_stock(sku, 9, 11).await?;
    stage.no_dead_letter_left(INVENTORY).await
}

/// The whole context of the failure.
fn inspect(stage: &Stage, letter: &DeadLetter) {
    stage.note(&format!("{} from {}, for the step {}", letter.event_type, letter.source_service, letter.step));
    stage.note(&format!("{} after {} attempts: {}", letter.reason, letter.attempts, letter.error_chain));
    let (correlation, trace) = (letter.correlation_id.as_deref(), letter.trace_id.as_deref());
    stage.note(&format!("correlation {}, trace {}", correlation.unwrap_or("unknown"), trace.unwrap_or("unknown")));
    stage.claim_is("the step is reserve_stock", letter.step.as_str(), "reserve_stock");
    stage.claim_is("after three attempts", letter.attempts, 3);
    stage.claim("it leads to its saga, its correlation and its trace", correlation.is_some() && trace.is_some());
}
