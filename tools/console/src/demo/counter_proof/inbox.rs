//! Without an inbox every delivery is applied, and a broker that promises to deliver at least once does deliver more
//! than once. Unique keys and the states of orders, payments and reservations hold off the worst; what nobody else
//! guards happens three times.

use std::time::Duration;

use crate::{
    demo::stage::Stage,
    suite::{FaultSpec, SERVICES},
};

const ORDERS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// The undos: their receipts are written, published and counted each time.
pub(super) const VIOLATED: &[&str] = &["steps_taken_once"];

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product; from now on the broker stores every event three times").await;
    let sku = stage.product(1_000, 1_700).await?;
    let position = stage.suite.gateway_position().await?;
    for service in SERVICES {
        stage.arm(service, FaultSpec::new("bus_publish", "duplicate").copies(2)).await?;
    }

    stage.step(&format!("{ORDERS} orders are confirmed, and then cancelled")).await;
    let placed = stage.place_all(&sku, ORDERS, "tok_visa").await?;
    stage.claim_tally(&placed, ORDERS, PATIENCE).await?;
    for order in &placed {
        stage.cancel(order.order_id, "changed their mind").await?;
    }
    stage.claim_tally(&placed, 0, PATIENCE).await?;

    stage.step("What other guards have held off").await;
    let charges = stage.suite.charges_since(position, &placed).await?;
    stage.claim_is("every card was charged once: a payment has one key at the gateway", charges, ORDERS);
    stage.claim_stock(&sku, 1_000, 0).await?;
    stage.note("a reservation is released once, because the second time it is not reserved any more");
    Ok(())
}
