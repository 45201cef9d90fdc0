//! 21: the same order, orchestrated: a coordinator commands the steps, and answers the customer at the end. When it dies between
//! a participant's answer and its own record of it, the next one goes on, and the card is charged once.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{FaultSpec, NewOrder, ORDER, Scope},
};

const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 10, 1_500).await?;

    run.step("Walter's order is answered when it is confirmed").await;
    let confirmed = ordered(run, &NewOrder::of("walter", &sku, 2, "tok_visa")).await?;
    run.claim_confirmed(confirmed).await?;

    run.step("Trudy's card is declined: the answer is the reason, and everything is undone").await;
    let declined = ordered(run, &NewOrder::of("trudy", &sku, 1, "tok_declined")).await?;
    run.claim_undone(declined).await?;
    run.claim_stock(&sku, 8, 2).await?;

    run.step("The coordinator dies when payment has charged Victor's card, and has not told it").await;
    let scope = Some(Scope { sku: Some(sku.clone()), step: Some("process_payment".to_owned()), ..Scope::default() });
    let crash = FaultSpec { first: Some(1), scope, ..FaultSpec::new("after_call_before_transition", "crash") };
    run.arm(ORDER, crash).await?;
    let (victor, key) = (NewOrder::of("victor", &sku, 1, "tok_visa"), Uuid::now_v7().to_string());
    let answer = run.suite.place_orchestrated(&victor, &key).await;
    run.claim("Victor gets no answer", answer.is_err());
    let crashed = run.crashed(ORDER).await?;
    run.start(&crashed).await?;

    run.step("Another coordinator goes on; Victor's app repeats its request").await;
    let (placed, _) = run.suite.place_orchestrated_surely(&victor, &key, LIMIT).await?;
    run.claim_confirmed(placed.order_id).await?;
    run.claim_stock(&sku, 7, 3).await?;

    run.step("Walter cancels: the coordinator undoes the steps in reverse").await;
    run.cancel(confirmed, "changed my mind").await?;
    run.claim_undone(confirmed).await?;
    run.claim_stock(&sku, 9, 1).await
}

async fn ordered(run: &ScenarioRun, order: &NewOrder) -> anyhow::Result<Uuid> {
    let key = Uuid::now_v7().to_string();
    Ok(run.suite.place_orchestrated_surely(order, &key, LIMIT).await?.0.order_id)
}
