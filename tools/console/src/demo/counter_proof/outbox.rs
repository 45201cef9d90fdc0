//! Without an outbox a service commits and then publishes. While the broker is away it commits all the same, and what
//! it had to say is lost.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::NewOrder,
};

const ORDERS: usize = 20;

pub(super) const VIOLATED: &[&str] =
    &["settled", "journal_published", "nothing_held_on_cancelled", "order_agrees_with_saga"];

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and an order: as long as all is well, nobody misses the outbox").await;
    let sku = stage.product(1_000, 1_500).await?;
    let early = stage.place(&NewOrder::of("trent", &sku, 1, "tok_visa")).await?;
    let ended = stage.ended(early.order_id).await?;
    stage.claim_confirmed(&ended).await?;

    stage.step(&format!("The broker is stopped; {ORDERS} customers order, and Trent cancels")).await;
    stage.stop("nats").await?;
    let placed = stage.place_all(&sku, ORDERS, "tok_visa").await?;
    stage.claim_is("every order was accepted", placed.len(), ORDERS);
    stage.cancel(early.order_id, "changed his mind").await?;

    stage.step("The broker is back").await;
    stage.start("nats").await?;
    stage.all_ready().await?;
    sleep(Duration::from_secs(5)).await;
    let mut pending = 0;
    for order in &placed {
        let status = stage.suite.order(order.order_id).await?.map(|order| order.status);
        pending += usize::from(status.as_deref() == Some("PENDING"));
    }
    stage.claim_is("nobody has heard of the orders: all are PENDING", pending, ORDERS);
    stage.claim_stock(&sku, 999, 1).await?;
    let payment = stage.suite.payment_of(early.order_id).await?.map(|payment| payment.status);
    stage.claim_is("and Trent's money is still held", payment.as_deref(), Some("CAPTURED"));

    stage.step("New orders flow as if nothing had happened").await;
    let late = stage.place(&NewOrder::of("victor", &sku, 1, "tok_visa")).await?;
    let ended = stage.ended_within(late.order_id, PATIENCE).await?;
    stage.claim_confirmed(&ended).await?;
    stage.note("what was lost will be noticed by the deadlines: the orders that were accepted will be cancelled");
    Ok(())
}
