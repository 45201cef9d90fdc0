//! 1: an order is reserved, paid and confirmed.

use crate::{demo::stage::Stage, suite::NewOrder};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(10, 1_999).await?;

    stage.step("Alice orders two and pays by card").await;
    let order = NewOrder::of("alice", &sku, 2, "tok_visa");
    let key = uuid::Uuid::now_v7().to_string();
    let placed = stage.suite.place(&order, &key, Some(10)).await?;
    stage.note(&format!("order {}", placed.order_id));
    stage.claim_is("order priced it itself, from its own view of the catalogue", placed.total.amount, 3_998);
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_is("the order is CONFIRMED", ended.order.status.as_str(), "CONFIRMED");

    stage.step("The saga that led there").await;
    for step in &ended.saga.steps {
        stage.note(&format!("{} {} ({}): {}", step.position, step.step, step.service, step.status));
    }
    stage.claim_is("it is COMPLETED", ended.saga.status.as_str(), "COMPLETED");
    let steps: Vec<&str> = ended.saga.steps.iter().map(|step| step.step.as_str()).collect();
    stage.claim_is(
        "it took its four steps, each once",
        steps,
        ["create_order", "reserve_stock", "process_payment", "confirm_order"],
    );

    stage.step("What the participants say").await;
    stage.claim_stock(&sku, 8, 2).await?;
    let payment = ended.payment.as_ref();
    stage.claim_is("payment has captured", payment.map(|p| p.status.as_str()), Some("CAPTURED"));
    stage.claim_is("the amount of the order", payment.map(|p| &p.amount), Some(&ended.order.total));
    if let Some(payment) = payment {
        let charge = stage.suite.charge(payment.payment_id).await?;
        stage.claim_is("and so has the gateway", charge.and_then(|c| c.amount), Some(ended.order.total.amount));
    }

    stage.step("Alice's app, unsure of the answer, sends the same request again").await;
    let again = stage.suite.place(&order, &key, None).await?;
    stage.claim_is("it is answered with the same order", again.order_id, placed.order_id);
    stage.claim_stock(&sku, 8, 2).await
}
