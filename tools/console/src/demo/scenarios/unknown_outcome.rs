//! 14: the gateway charges the card and the answer is lost. Payment repeats the request under the same key, so the card is
//! charged once.

use crate::{demo::scenario_run::ScenarioRun, suite::NewOrder};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 10, 8_800).await?;
    let position = run.suite.gateway_position().await?;

    run.step("Heidi orders one with a card that is charged while the connection breaks").await;
    let placed = run.place(&NewOrder::of("heidi", &sku, 1, "tok_unknown_outcome")).await?;
    run.claim_confirmed(placed.order_id).await?;
    run.claim_stock(&sku, 9, 1).await?;

    run.step("The gateway's ledger").await;
    let charges = run.suite.charges_since(position, std::slice::from_ref(&placed)).await?;
    run.claim_is("the gateway has charged her once", charges, 1);

    run.step("She cancels: the charge without an answer is refunded, too").await;
    run.cancel(placed.order_id, "changed her mind").await?;
    run.claim_undone(placed.order_id).await?;
    run.claim_stock(&sku, 10, 0).await
}
