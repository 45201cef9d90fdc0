//! Counter-proofs: a scenario on a separate suite that was started without one mechanism. It passes when the audit finds the
//! damage.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    preflight::Need,
    scenario_run::{SAGA_TIMEOUT, ScenarioRun},
    scenarios::Scenario,
};
use crate::suite::{FaultSpec, NewOrder, SERVICES};

/// A mechanism that a suite can be started without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mechanism {
    /// Events are published straight after the commit
    Outbox,
    /// Every delivery is applied, repeated ones too
    Inbox,
}

impl Mechanism {
    pub(super) const fn scenario(self) -> &'static Scenario {
        match self {
            Mechanism::Outbox => &OUTBOX,
            Mechanism::Inbox => &INBOX,
        }
    }
}

const OUTBOX: Scenario = Scenario {
    number: 0,
    name: "without outbox",
    about: "without an outbox, events are lost while the broker is down",
    needs: &[Need::Faults, Need::Processes],
    violated: &["settled", "journal_published", "nothing_held_on_cancelled", "order_agrees_with_saga"],
    play: |run| Box::pin(without_outbox(run)),
};

const INBOX: Scenario = Scenario {
    name: "without inbox",
    about: "without an inbox, an event that is delivered three times takes effect three times",
    // The undos: each delivery writes, publishes and counts another undo confirmation.
    violated: &["steps_taken_once"],
    play: |run| Box::pin(without_inbox(run)),
    ..OUTBOX
};

const ORDERS: usize = 20;

/// Without an outbox a service commits and then publishes. While the broker is down it still commits, and the events are lost.
async fn without_outbox(run: &mut ScenarioRun) -> anyhow::Result<()> {
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
    run.suite.become_ready().await?;
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

/// Without an inbox every delivery is applied, and an at-least-once broker delivers repeatedly. Unique keys and the states of
/// orders, payments and reservations prevent most damage; effects without such a guard happen three times.
async fn without_inbox(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let title = "A new product; from now on the broker stores every event three times";
    let sku = run.step_with_product(title, 1_000, 1_700).await?;
    let position = run.suite.gateway_position().await?;
    for service in SERVICES {
        run.arm(service, FaultSpec { copies: Some(2), ..FaultSpec::new("bus_publish", "duplicate") }).await?;
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
