//! The commands of a coordinator: the steps of the orchestrated saga, with the decisions of the choreographed one and the same
//! three phases. A repeated command is answered from the payment, which an order has once.

use contracts::{
    OrderId,
    orchestrated::{Answer, Charge, PROCESS_PAYMENT, REFUND_PAYMENT},
};
use messaging::{Context, StepError, UnitOfWork};
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Plan, Status},
    steps,
    store::{self, NewPayment, Payments, StoredPayment},
};

/// Step 2: charges once. The coordinator decides whether the saga still moves forward; after a refund nothing is charged.
pub(crate) async fn charge(app: App, context: Context, command: Charge) -> Result<Answer, StepError> {
    let new = new_payment(&command)?;
    let mut work = app.participant.http_outbox.begin().await?;
    store::insert_intents(work.conn(), std::slice::from_ref(&new)).await?;
    let mut payments = store::payments_of(work.conn(), &[new.order_id]).await?;
    let stored = of_saga(&mut payments, new.order_id, Some(new.saga_id))?;
    let plan = domain::plan_charge(Some(&stored.payment), true, stored.intent.amount.amount);
    work.commit_intent().await?;
    let answer = match plan {
        Plan::Ask(ask) => steps::ask(&app, &PROCESS_PAYMENT, (ask, stored.intent.clone()), &context).await?,
        Plan::Known(answer) => answer,
        Plan::Skip(_) => return Ok(answer_of(&stored.payment.status)),
    };
    let mut work = app.participant.http_outbox.begin().await?;
    work.concerns(&context, &PROCESS_PAYMENT);
    let mut payments = store::lock_payments(work.conn(), &[new.order_id]).await?;
    let stored = of_saga(&mut payments, new.order_id, Some(new.saga_id))?;
    let charged = domain::apply_charge_answer(&stored.payment, &answer, true)?;
    stored.set_status(charged.status);
    let answer = answer_of(&stored.payment.status);
    if let domain::ChargeEvent::Failed(code) = &charged.event {
        work.after_commit(app.declines.count(code));
    }
    finish(work, &payments).await?;
    Ok(answer)
}

/// Undoes step 2: ensures that the order holds no money, now and later.
pub(crate) async fn refund(app: App, context: Context, command: Charge) -> Result<Answer, StepError> {
    let new = new_payment(&command)?;
    undo(&app, &context, &new, Some(new.saga_id)).await?;
    Ok(Answer::Done)
}

/// The three phases of a refund, of the payment of `saga_id` if there is one; idempotent.
pub(crate) async fn undo(
    app: &App,
    context: &Context,
    tombstone: &NewPayment,
    saga_id: Option<Uuid>,
) -> Result<(), StepError> {
    let mut work = app.participant.http_outbox.begin().await?;
    let mut payments = store::cancel_payments(work.conn(), std::slice::from_ref(tombstone)).await?;
    let stored = of_saga(&mut payments, tombstone.order_id, saga_id)?;
    work.commit_intent().await?;
    let answer = match domain::plan_refund(&stored.payment) {
        Plan::Ask(ask) => Some(steps::ask(app, &REFUND_PAYMENT, (ask, stored.intent.clone()), context).await?),
        Plan::Known(_) | Plan::Skip(_) => None,
    };
    let mut work = app.participant.http_outbox.begin().await?;
    work.concerns(context, &REFUND_PAYMENT);
    let mut payments = store::lock_payments(work.conn(), &[tombstone.order_id]).await?;
    let stored = of_saga(&mut payments, tombstone.order_id, saga_id)?;
    stored.set_status(domain::apply_refund_answer(&stored.payment, answer.as_ref())?);
    finish(work, &payments).await
}

fn new_payment(Charge { saga_id, order_id, total, payment_method }: &Charge) -> Result<NewPayment, StepError> {
    match total.amount {
        ..0 => Err(StepError::Poison(format!("{} minor units cannot be charged", total.amount).into())),
        _ => Ok(NewPayment::new(*order_id, saga_id.0, *total, payment_method)),
    }
}

/// The order's payment, which must be that of `saga_id` if there is one.
fn of_saga(payments: &mut Payments, order_id: OrderId, saga_id: Option<Uuid>) -> Result<&mut StoredPayment, StepError> {
    let stored = payments.get_mut(&order_id).ok_or_else(|| StepError::failed("the payment does not exist"))?;
    match saga_id {
        Some(other) if other != stored.saga_id => Err(StepError::Poison("the order belongs to another saga".into())),
        _ => Ok(stored),
    }
}

async fn finish(mut work: UnitOfWork, payments: &Payments) -> Result<(), StepError> {
    store::save_payments(work.conn(), payments).await?;
    Ok(work.commit().await?)
}

/// The same for every repeat of the command.
fn answer_of(status: &Status) -> Answer {
    let refused = |reason: String| Answer::Refused { reason };
    match status {
        Status::Captured(_) => Answer::Done,
        Status::Declined(code) => refused(format!("the payment was refused: {}", code.0)),
        Status::Pending | Status::Refunded(_) | Status::Voided { .. } => refused("the order was cancelled".to_owned()),
    }
}
