//! Charges at the gateway whose orders a restored database does not have. Their sagas are missing, too, so this is not a
//! step.

use messaging::{Context, StepError};

use crate::{
    App, commands,
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
    drop(work);
    commands::undo(app, context, &forgotten, None).await?;
    Ok(true)
}
