//! Without an inbox every delivery is applied, and an at-least-once broker delivers repeatedly. Unique keys and the states of
//! orders, payments and reservations prevent most damage; effects without such a guard happen three times.

use crate::{
    demo::scenario_run::{SAGA_TIMEOUT, ScenarioRun},
    suite::{FaultSpec, SERVICES},
};

const ORDERS: usize = 20;

/// The undos: each delivery writes, publishes and counts another undo confirmation.
pub(super) const VIOLATED: &[&str] = &["steps_taken_once"];

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let title = "A new product; from now on the broker stores every event three times";
    let sku = run.step_with_product(title, 1_000, 1_700).await?;
    let position = run.suite.gateway_position().await?;
    for service in SERVICES {
        run.arm(service, FaultSpec::new("bus_publish", "duplicate").copies(2)).await?;
    }

    run.step(&format!("{ORDERS} orders are confirmed, and then cancelled")).await;
    let placed = run.place_all(&sku, ORDERS, "tok_visa").await?;
    run.claim_tally(&placed, ORDERS, SAGA_TIMEOUT).await?;
    for order in &placed {
        run.cancel(order.order_id, "changed their mind").await?;
    }
    run.claim_tally(&placed, 0, SAGA_TIMEOUT).await?;

    run.step("What other guards have prevented").await;
    let charges = run.suite.charges_since(position, &placed).await?;
    run.claim_is("every card was charged once: a payment has one key at the gateway", charges, ORDERS);
    run.claim_stock(&sku, 1_000, 0).await?;
    run.note("a reservation is released once, because the second time it is not reserved any more");
    Ok(())
}
