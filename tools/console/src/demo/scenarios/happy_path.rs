//! 1: an order is reserved, paid and confirmed.

use crate::{demo::scenario_run::ScenarioRun, suite::NewOrder};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 10, 1_999).await?;

    run.step("Alice orders two and pays by card").await;
    let order = NewOrder::of("alice", &sku, 2, "tok_visa");
    let key = uuid::Uuid::now_v7().to_string();
    let placed = run.suite.place(&order, &key, Some(10)).await?;
    run.note(&format!("order {}", placed.order_id));
    run.claim_is("order priced it from its own view of the catalogue", placed.total.amount, 3_998);
    let ended = run.ended(placed.order_id).await?;
    run.claim_is("the order is CONFIRMED", ended.order.status.as_str(), "CONFIRMED");

    run.step("The journal of the saga").await;
    for step in &ended.saga.steps {
        run.note(&format!("{} {} ({}): {}", step.position, step.step, step.service, step.status));
    }
    run.claim_is("it is COMPLETED", ended.saga.status.as_str(), "COMPLETED");
    let steps: Vec<&str> = ended.saga.steps.iter().map(|step| step.step.as_str()).collect();
    let expected = ["create_order", "reserve_stock", "process_payment", "confirm_order"];
    run.claim_is("it took its four steps, each once", steps, expected);

    run.step("The records of the participants").await;
    run.claim_stock(&sku, 8, 2).await?;
    let payment = ended.payment.as_ref();
    run.claim_is("payment has captured", payment.map(|p| p.status.as_str()), Some("CAPTURED"));
    run.claim_is("the amount of the order", payment.map(|p| &p.amount), Some(&ended.order.total));
    if let Some(payment) = payment {
        let charge = run.suite.charge(payment.payment_id).await?;
        run.claim_is("and so has the gateway", charge.and_then(|c| c.amount), Some(ended.order.total.amount));
    }

    run.step("Alice's app repeats the same request").await;
    let again = run.suite.place(&order, &key, None).await?;
    run.claim_is("it is answered with the same order", again.order_id, placed.order_id);
    run.claim_stock(&sku, 8, 2).await
}
