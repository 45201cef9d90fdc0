//! Provocations by the card processor's answers, and by charges that payment has lost.

use anyhow::{Context, ensure};
use contracts::{OrderId, PAYMENT, PaymentId};
use serde_json::json;
use testkit::eventually;

use crate::experiment::{DECLINED, Experiment, GOOD, LIMIT, PLENTY};

/// Fifteen cards in a row are declined, and then some orders with good cards are placed.
pub async fn decline_everything(experiment: &mut Experiment) -> anyhow::Result<()> {
    for _ in 0..3 {
        experiment.order(5, PLENTY, DECLINED).await?;
    }
    experiment.wait_for_all_ends().await?;
    experiment.order_available(3).await
}

/// Fifteen charges in a row are rejected permanently (422), because their keys have been used for other charges; then some orders
/// with good cards are placed.
pub async fn reject_charges_for_good(experiment: &mut Experiment) -> anyhow::Result<()> {
    experiment.testbed.suite().pause_consumer(PAYMENT, "process_payment").await?;
    for order in experiment.order(15, PLENTY, GOOD).await? {
        let key = PaymentId::of(OrderId(order)).to_string();
        let other = json!({"amount": 1, "currency": "USD", "token": DECLINED});
        let refused =
            experiment.testbed.suite().charge_card(&key, &other).await.err().context("the other charge is made")?;
        ensure!(refused.status().is_some_and(|status| status == 402), "the other charge: {refused}");
    }
    experiment.testbed.suite().resume_consumer(PAYMENT, "process_payment").await?;
    experiment.wait_for_all_ends().await?;
    experiment.order_available(3).await
}

/// Payment crashes after a charge. While it is down its payments are deleted, as by a restore, and the orders are cancelled.
pub async fn forget_charges(experiment: &mut Experiment) -> anyhow::Result<()> {
    experiment.something_failed = true;
    experiment.arm(PAYMENT, json!({"point": "after_charge_before_record", "kind": "crash", "first": 1})).await?;
    let orders = experiment.order(3, PLENTY, GOOD).await?;
    let payment = experiment.first(PAYMENT);
    eventually(LIMIT, async || !payment.program.is_running().await).await?;
    sqlx::query("delete from payment.payment").execute(&experiment.testbed.pool).await?;
    for order in orders {
        experiment.cancel(order).await?;
    }
    payment.program.start().await?;
    experiment.testbed.ready_one(&payment, LIMIT).await
}
