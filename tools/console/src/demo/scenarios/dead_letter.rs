//! 7: the investigation of a stuck order: the healthy step, the dead letter, its inspection, a dry run, and the replay. Eleven
//! steps, for a demonstration with `--pause`.

use std::time::Duration;

use anyhow::Context;

use crate::{
    demo::scenario_run::{SAGA_TIMEOUT, ScenarioRun},
    suite::{Breaker, DeadLetter, FaultSpec, INVENTORY, NewOrder, Order, Scope, until},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let title = "A new product, and a deadline of half an hour, so that the saga lasts during the investigation";
    let sku = run.step_with_product(title, 20, 6_600).await?;
    run.restart_with("order", &[("SAGA_DEADLINE", "30m")]).await?;
    let (placed, letter) = fail_until_dead_letter(run, &sku).await?;
    investigate(run, &placed, &letter).await?;
    repair_and_replay(run, &sku, &placed, &letter).await?;
    run.restart("order").await
}

/// Steps 2 to 6: up to the dead letter.
async fn fail_until_dead_letter(run: &mut ScenarioRun, sku: &str) -> anyhow::Result<(Order, DeadLetter)> {
    run.step("The healthy step: ten orders pass reserve_stock").await;
    let healthy = run.place_all(sku, 10, "tok_visa").await?;
    run.claim_tally(&healthy, 10, SAGA_TIMEOUT).await?;
    run.claim_stock(sku, 10, 10).await?;

    run.step("A fault: orders of this SKU cannot be reserved any more").await;
    let scope = Some(Scope { sku: Some(sku.to_owned()), ..Scope::default() });
    run.expect_dead_letters(INVENTORY);
    let fault = run.arm(INVENTORY, FaultSpec { scope, ..FaultSpec::new("in_step", "error") }).await?;

    run.step("Nina orders one").await;
    let placed = run.place(&NewOrder::of("nina", sku, 1, "tok_visa")).await?;

    run.step("Inventory retries with growing pauses").await;
    let retried = async || Ok(run.suite.armed_fault(INVENTORY, fault.id).await?.filter(|f| f.hits >= 3));
    run.claim_soon("three attempts have failed", retried).await?;
    run.claim_order("the order is PENDING", placed.order_id, "PENDING").await?;

    run.step("After the last attempt the event is a dead letter").await;
    let found = until(Duration::from_secs(10), async || {
        let letters = run.suite.pending_dead_letters(INVENTORY).await?;
        Ok(letters.into_iter().find(|letter| letter.saga_id == Some(placed.saga_id)))
    });
    let letter = found.await?.context("there is no dead letter")?;
    run.claim_is("it is PENDING", letter.status.as_str(), "PENDING");
    let closed = run.suite.breakers(INVENTORY).await?.items.iter().all(Breaker::is_closed);
    run.claim("one failing order opens no breaker: other orders are processed", closed);
    Ok((placed, letter))
}

/// Steps 7 to 9: the investigation.
async fn investigate(run: &mut ScenarioRun, placed: &Order, letter: &DeadLetter) -> anyhow::Result<()> {
    run.step("The content of the dead letter").await;
    inspect(run, letter);

    run.step("The explanation for customer support").await;
    let explanation = run.suite.explain(placed.order_id).await?;
    run.note(&explanation.summary);
    let dead = explanation.findings.iter().find(|finding| finding.kind == "dead_letter");
    run.claim("the explanation names the dead letter", dead.is_some());
    if let Some(dead) = dead {
        run.note(&dead.what);
        run.note(dead.remedy.as_ref().map_or("no remedy is known", |remedy| &remedy.what));
    }

    run.step("A replay that comes too early").await;
    let early = run.suite.replay(INVENTORY, letter.id, "maybe it works now").await?;
    run.claim_is("it fails again, and the dead letter is PENDING as before", early.status.as_str(), "PENDING");
    run.claim_is("one replay of three is used", early.replay_count, 1);
    Ok(())
}

/// Steps 10 and 11: the replay, at the right time.
async fn repair_and_replay(
    run: &mut ScenarioRun,
    sku: &str,
    placed: &Order,
    letter: &DeadLetter,
) -> anyhow::Result<()> {
    run.step("The cause is removed, and the replay is rehearsed").await;
    run.disarm(INVENTORY).await?;
    let rehearsal = run.suite.rehearse_replay(INVENTORY, placed.saga_id).await?;
    let item = rehearsal.items.first().context("the dry run has no item")?;
    run.claim_is("it would be applied", item.outcome.as_str(), "would_apply");
    run.claim_is("and publish that the stock is reserved", item.emits.join(" "), "StockReserved.v1");
    run.claim_stock(sku, 10, 10).await?;

    run.step("The dead letter is replayed, and the order continues").await;
    let replayed = run.suite.replay(INVENTORY, letter.id, "the cause is gone").await?;
    run.claim_is("it is RESOLVED", replayed.status.as_str(), "RESOLVED");
    run.note_actions(&replayed);
    run.claim_confirmed(placed.order_id).await?;
    run.claim_stock(sku, 9, 11).await?;
    run.resolve_dead_letters(INVENTORY).await
}

fn inspect(run: &ScenarioRun, letter: &DeadLetter) {
    run.note(&format!("{} from {}, for the step {}", letter.event_type, letter.source_service, letter.step));
    run.note(&format!("{} after {} attempts: {}", letter.reason, letter.attempts, letter.error_chain));
    let (correlation, trace) = (letter.correlation_id.as_deref(), letter.trace_id.as_deref());
    run.note(&format!("correlation {}, trace {}", correlation.unwrap_or("unknown"), trace.unwrap_or("unknown")));
    run.claim_is("the step is reserve_stock", letter.step.as_str(), "reserve_stock");
    run.claim_is("after three attempts", letter.attempts, 3);
    run.claim("it names its saga, its correlation and its trace", correlation.is_some() && trace.is_some());
}
