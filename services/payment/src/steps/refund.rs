//! The compensation of step 2, `refund_payment`: gives back what a cancelled order was charged.

use std::collections::HashMap;

use contracts::{
    Money, OrderId, PAYMENT,
    order_fulfillment::{OrderCancelled, PaymentRefunded, REFUND_PAYMENT},
};
use messaging::{Batch, Committed, Context, Delivery, StepError, UnitOfWork, inbox, retry_contended};
use saga::{Event, StepStatus, Transition};
use saga_store::{Recorded, Sagas};
use uuid::Uuid;

use super::{Finding, Found, Next, ask_and_settle, intent, of_a_saga};
use crate::{
    App,
    domain::{self, Plan, Status},
    store::{self, NewPayment, StoredPayment},
};

/// Makes sure that payment keeps nothing of the order and never will, and always answers: `PaymentRefunded`,
/// with zero when nothing was ever captured.
pub async fn refund_payment(app: App, batch: Batch<OrderCancelled>) -> Result<Committed, StepError> {
    let (deliveries, committed) = of_a_saga(batch);
    let next = retry_contended(|| prepare(&app, &deliveries)).await?;
    let todo = deliveries.into_iter().zip(next).collect();
    Ok(committed.and(ask_and_settle(&app, &REFUND_PAYMENT, todo, settle).await?))
}

/// Writes down, before anybody is asked, that the orders are cancelled.
async fn prepare(app: &App, deliveries: &[Delivery<OrderCancelled>]) -> Result<Vec<Next>, StepError> {
    let event_ids: Vec<Uuid> = deliveries.iter().map(|d| d.meta.event_id).collect();
    let mut work = app.participant.outbox.begin().await?;
    let had = inbox::already_had(work.conn(), &REFUND_PAYMENT.consumer(), &event_ids).await?;
    let fresh = deliveries.iter().filter(|d| !had.contains(&d.meta.event_id));
    let tombstones: Vec<NewPayment> = fresh.filter_map(tombstone).collect();
    let payments = store::cancel_payments(work.conn(), &tombstones).await?;
    work.commit_intent().await?;
    let next = deliveries.iter().map(|delivery| {
        let stored = payments.get(&delivery.event.order_id).filter(|_| !had.contains(&delivery.meta.event_id));
        let plan = stored.map_or(Plan::Skip("a repeated delivery"), |stored| domain::plan_refund(&stored.payment));
        Next::of(plan, stored)
    });
    Ok(next.collect())
}

fn tombstone(delivery: &Delivery<OrderCancelled>) -> Option<NewPayment> {
    let OrderCancelled { order_id, total, payment_method, .. } = &delivery.event;
    let saga_id = delivery.meta.saga_id()?;
    Some(NewPayment { order_id: *order_id, saga_id, amount: *total, method: payment_method.clone() })
}

/// Gives back what was charged for an order that the database has forgotten, as it does when it is set back to an earlier
/// moment, and leaves a tombstone; a repeat changes nothing. False: there is a payment that no cancellation has reached, so
/// the order is known, and can be cancelled.
pub(crate) async fn refund_forgotten(app: &App, forgotten: NewPayment, context: &Context) -> Result<bool, StepError> {
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

/// One transaction for the deliveries whose answers are there.
async fn settle(app: App, found: Vec<Found<OrderCancelled>>) -> Result<Committed, StepError> {
    let findings: HashMap<Uuid, Finding> =
        found.iter().map(|f| (f.delivery.meta.event_id, f.finding.clone())).collect();
    let batch = Batch::new(&REFUND_PAYMENT.step, found.into_iter().map(|f| f.delivery).collect());
    let (mut work, deliveries) = app.participant.outbox.claim(batch).await?;
    let saga_ids = deliveries.iter().filter_map(|d| d.meta.saga_id());
    let mut sagas = saga_store::lock(work.conn(), app.participant.definition, PAYMENT, saga_ids).await?;
    let orders: Vec<OrderId> = deliveries.iter().map(|d| d.event.order_id).collect();
    let mut payments = store::lock_payments(work.conn(), &orders).await?;
    for delivery in &deliveries {
        let stored = payments.get_mut(&delivery.event.order_id);
        let stored = stored.ok_or_else(|| StepError::failed("a payment was cancelled that is not there"))?;
        let answer = findings.get(&delivery.meta.event_id).and_then(Finding::answer);
        stored.becomes(domain::settle_refund(&stored.payment, answer)?);
        give_receipt(&mut work, &mut sagas, delivery, stored)?;
    }
    store::save_payments(work.conn(), &store::changed(&payments)).await?;
    sagas.save(&mut work).await?;
    work.commit().await
}

fn give_receipt(
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    delivery: &Delivery<OrderCancelled>,
    stored: &mut StoredPayment,
) -> Result<(), StepError> {
    let refunded = matches!(stored.payment.status, Status::Refunded(_));
    let amount = if refunded { stored.amount } else { Money::new(0, stored.amount.currency) };
    let event = PaymentRefunded { order_id: stored.order_id, payment_id: stored.payment_id, amount };
    let context = delivery.meta.context();
    let event_id = work.publish(&REFUND_PAYMENT, &context, stored.next_event(), &event)?;
    sagas.record(
        &context,
        Recorded {
            step: &REFUND_PAYMENT,
            status: StepStatus::Compensated,
            transition: Transition::Receipt { from: PAYMENT },
            event_type: PaymentRefunded::TYPE.wire_name(),
            event_id: Some(event_id),
            reason: None,
        },
    )
}
