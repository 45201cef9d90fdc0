//! Without an outbox a service commits and then publishes. While the broker is down it still commits, and the events are lost.

use std::time::Duration;

use tokio::time::sleep;

use crate::{demo::scenario_run::ScenarioRun, suite::NewOrder};

const ORDERS: usize = 20;

pub(super) const VIOLATED: &[&str] =
    &["settled", "journal_published", "nothing_held_on_cancelled", "order_agrees_with_saga"];

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let title = "A new product, and an order: while the broker is up, the missing outbox has no effect";
    let sku = run.step_with_product(title, 1_000, 1_500).await?;
    let early = run.place(&NewOrder::of("trent", &sku, 1, "tok_visa")).await?;
    run.claim_confirmed(early.order_id).await?;

    run.step(&format!("The broker is stopped; {ORDERS} customers order, and Trent cancels")).await;
    run.stop("nats").await?;
    let placed = run.place_all(&sku, ORDERS, "tok_visa").await?;
    run.claim_is("every order was accepted", placed.len(), ORDERS);
    run.cancel(early.order_id, "changed his mind").await?;

    run.step("The broker is back").await;
    run.start("nats").await?;
    run.all_ready().await?;
    sleep(Duration::from_secs(5)).await;
    let mut pending = 0;
    for order in &placed {
        let status = run.suite.order(order.order_id).await?.map(|order| order.status);
        pending += usize::from(status.as_deref() == Some("PENDING"));
    }
    run.claim_is("no consumer has received the orders: all are PENDING", pending, ORDERS);
    run.claim_stock(&sku, 999, 1).await?;
    run.claim_payment("and Trent's payment is still captured", early.order_id, "CAPTURED").await?;

    run.step("New orders are fulfilled as usual").await;
    let late = run.place(&NewOrder::of("victor", &sku, 1, "tok_visa")).await?;
    run.claim_confirmed(late.order_id).await?;
    run.note("the saga deadlines will detect the lost events: the accepted orders will be cancelled");
    Ok(())
}
