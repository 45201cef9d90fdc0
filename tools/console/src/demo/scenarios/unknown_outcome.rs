//! 14: the gateway charges the card and the answer is lost. Payment asks again under the same key instead of guessing,
//! so the card is charged once.

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::NewOrder,
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(10, 8_800).await?;
    let position = stage.suite.gateway_position().await?;

    stage.step("Heidi orders one with a card that is charged while the connection breaks").await;
    let placed = stage.place(&NewOrder::of("heidi", &sku, 1, "tok_unknown_outcome")).await?;
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_confirmed(&ended).await?;
    stage.claim_stock(&sku, 9, 1).await?;

    stage.step("The gateway's books").await;
    let charges = stage.suite.charges_since(position, std::slice::from_ref(&placed)).await?;
    stage.claim_is("the gateway has charged her once", charges, 1);

    stage.step("She cancels: what was charged in the dark is given back, too").await;
    stage.cancel(placed.order_id, "changed her mind").await?;
    let undone = stage.undone(placed.order_id, PATIENCE).await?;
    stage.claim_undone(&undone).await?;
    stage.claim_stock(&sku, 10, 0).await
}
