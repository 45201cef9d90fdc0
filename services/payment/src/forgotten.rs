//! Charges at the gateway whose orders a restored database does not have. Their sagas are missing, too, so this is not a
//! step.

use messaging::{Context, StepError};

use crate::{
    App,
    domain::{self, Plan},
    store::{self, NewPayment},
};

/// Refunds the charge, and inserts a tombstone; idempotent. False if there is a payment that is not cancelled: then the order
/// is known, and can be cancelled.
pub(crate) async fn refund(app: &App, forgotten: NewPayment, context: &Context) -> Result<bool, StepError> {
    let order_id = forgotten.order_id;
    let mut work = app.participant.http_outbox.begin().await?;
    if store::payments_of(work.conn(), &[order_id]).await?.values().any(|known| !known.payment.cancelled) {
        return Ok(false);
    }
    let payments = store::cancel_payments(work.conn(), &[forgotten]).await?;
    work.commit_intent().await?;
    let stored = payments.get(&order_id).ok_or_else(|| StepError::failed("the tombstone does not exist any more"))?;
    let answer = match domain::plan_refund(&stored.payment) {
        Plan::Ask(ask) => Some(app.gateway.ask(&ask, &stored.intent, context).await?),
        Plan::Known(_) | Plan::Skip(_) => None,
    };
    let mut work = app.participant.http_outbox.begin().await?;
    let mut payments = store::lock_payments(work.conn(), &[order_id]).await?;
    for stored in payments.values_mut() {
        stored.set_status(domain::apply_refund_answer(&stored.payment, answer.as_ref())?);
    }
    store::save_payments(work.conn(), &payments).await?;
    work.commit_intent().await?;
    Ok(true)
}
