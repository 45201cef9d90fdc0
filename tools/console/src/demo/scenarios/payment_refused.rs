//! 5: the card is declined. A refusal is no error: it compensates at once.

use crate::{demo::stage::Stage, suite::NewOrder};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(10, 5_000).await?;

    stage.step("Dave orders one with a card that will be declined").await;
    let placed = stage.place(&NewOrder::of("dave", &sku, 1, "tok_declined")).await?;
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_undone(&ended).await?;
    let refused_at = ended.saga.refused_at();
    stage.claim_is("process_payment refused", refused_at.map(|step| step.step.as_str()), Some("process_payment"));
    if let Some(reason) = &ended.order.cancel_reason {
        stage.note(reason);
    }

    stage.step("What the participants say").await;
    let payment = ended.payment.as_ref();
    stage.claim_is("the payment is DECLINED", payment.map(|p| p.status.as_str()), Some("DECLINED"));
    let code = payment.and_then(|p| p.decline_code.as_deref());
    stage.claim_is("payment knows why", code, Some("card_declined"));
    stage.claim_is("the reservation is RELEASED", ended.reservation.map(|r| r.status), Some("RELEASED".to_owned()));
    stage.claim_stock(&sku, 10, 0).await
}
