//! 5: the card is declined. A refusal is a business outcome: the saga compensates at once.

use crate::{demo::scenario_run::ScenarioRun, suite::NewOrder};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 10, 5_000).await?;

    run.step("Dave orders one with a card that will be declined").await;
    let placed = run.place(&NewOrder::of("dave", &sku, 1, "tok_declined")).await?;
    let ended = run.claim_undone(placed.order_id).await?;
    let refused_at = ended.saga.refused_at();
    run.claim_is("process_payment refused", refused_at.map(|step| step.step.as_str()), Some("process_payment"));
    if let Some(reason) = &ended.order.cancel_reason {
        run.note(reason);
    }

    run.step("The records of the participants").await;
    let payment = ended.payment.as_ref();
    run.claim_is("the payment is DECLINED", payment.map(|p| p.status.as_str()), Some("DECLINED"));
    let code = payment.and_then(|p| p.decline_code.as_deref());
    run.claim_is("payment has stored the reason", code, Some("card_declined"));
    run.claim_is("the reservation is RELEASED", ended.reservation.map(|r| r.status), Some("RELEASED".to_owned()));
    run.claim_stock(&sku, 10, 0).await
}
