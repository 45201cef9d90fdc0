//! Provocations of the saga: overtaking, late success, participants that are down.

use std::time::Duration;

use contracts::{INVENTORY, ORDER, PAYMENT};
use serde_json::json;

use crate::experiment::{Experiment, GOOD, LIMIT, PLENTY, SLOW};

/// The charges succeed after the detection of the deadline. Waits long enough for a detector that writes later than it reads.
pub async fn succeed_after_the_deadline(experiment: &mut Experiment) -> anyhow::Result<()> {
    experiment.order(6, PLENTY, SLOW).await?;
    let long_past = "select coalesce(max(deadline) < now() - interval '4 seconds', false) from saga.saga_instance";
    experiment.wait_until("all deadlines are long past", long_past).await
}

/// The orders are delayed at inventory, and their cancellations overtake them.
pub async fn cancel_before_the_step(experiment: &mut Experiment) -> anyhow::Result<()> {
    let held = json!({"point": "before_inbox_claim", "kind": "hang", "scope": {"step": "reserve_stock"}});
    experiment.arm(INVENTORY, held).await?;
    for order in experiment.order(4, PLENTY, GOOD).await? {
        experiment.cancel(order).await?;
    }
    experiment.wait_for_all_ends().await?;
    experiment.disarm().await
}

/// Confirmed orders are cancelled while inventory is down.
pub async fn cancel_while_a_participant_is_away(experiment: &mut Experiment) -> anyhow::Result<()> {
    let orders = experiment.order(4, PLENTY, GOOD).await?;
    experiment.wait_for_all_ends().await?;
    let inventory = experiment.first(INVENTORY);
    inventory.program.kill().await;
    experiment.something_failed = true;
    for order in orders {
        experiment.cancel(order).await?;
    }
    let refunded = "select count(*) = 0 from payment.payment where status = 'CAPTURED'";
    experiment.wait_until("payment has refunded everything", refunded).await?;
    experiment.look_for(Duration::from_secs(1)).await?;
    inventory.program.start().await?;
    experiment.testbed.ready_one(&inventory, LIMIT).await
}

/// Confirmed orders are cancelled while order's relay is paused, for longer than all attempts of a compensation take.
pub async fn cancel_while_the_relay_is_paused(experiment: &mut Experiment) -> anyhow::Result<()> {
    let orders = experiment.order(4, PLENTY, GOOD).await?;
    experiment.wait_for_all_ends().await?;
    experiment.testbed.suite().pause_relay(ORDER).await?;
    for order in orders {
        experiment.cancel(order).await?;
    }
    // Each attempt has twice the time of the one before: 63 tenths of a second for the first and five more.
    experiment.look_for(Duration::from_secs(12)).await?;
    Ok(experiment.testbed.suite().resume_relay(ORDER).await?)
}

/// The coordinator dies when a participant has answered its command, and is started again.
pub async fn kill_the_coordinator(experiment: &mut Experiment) -> anyhow::Result<()> {
    let crash = json!({"point": "after_call_before_transition", "kind": "crash", "first": 1});
    experiment.crash_orchestrated(ORDER, crash).await
}

/// Payment dies when it has charged a commanded order and has not recorded it, and is started again.
pub async fn lose_the_record_of_a_commanded_charge(experiment: &mut Experiment) -> anyhow::Result<()> {
    let crash = json!({"point": "after_charge_before_record", "kind": "crash", "first": 1});
    experiment.crash_orchestrated(PAYMENT, crash).await
}
