//! Charges whose orders the database has forgotten, as it does when it is set back to an earlier moment. Their sagas are
//! forgotten, too, so this is no step.

use messaging::{Context, StepError};

use crate::{
    App,
    domain::{self, Plan},
    steps::intent,
    store::{self, NewPayment},
};

/// Gives back what was charged, and leaves a tombstone; a repeat changes nothing. False: there is a payment that no
/// cancellation has reached, so the order is known, and can be cancelled.
pub(crate) async fn refund(app: &App, forgotten: NewPayment, context: &Context) -> Result<bool, StepError> {
    let order_id = forgotten.order_id;
    let mut work = app.participant.http_outbox.begin().await?;
    if store::payments_of(work.conn(), &[order_id]).await?.values().any(|known| !known.payment.cancelled) {
        return Ok(false);
    }
    let payments = store::cancel_payments(work.conn(), &[forgotten]).await?;
    work.commit_intent().await?;
    let stored = payments.get(&order_id).ok_or_else(|| StepError::failed("a tombstone was written and is gone"))?;
    let answer = match domain::plan_refund(&stored.payment) {
        Plan::Ask(ask) => Some(app.gateway.ask(&ask, &intent(stored), context).await?),
        Plan::Known(_) | Plan::Skip(_) => None,
    };
    let mut work = app.participant.http_outbox.begin().await?;
    let mut payments = store::lock_payments(work.conn(), &[order_id]).await?;
    for stored in payments.values_mut() {
        stored.becomes(domain::settle_refund(&stored.payment, answer.as_ref())?);
    }
    store::save_payments(work.conn(), &store::changed(&payments)).await?;
    work.commit_intent().await?;
    Ok(true)
}
