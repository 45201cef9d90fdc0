//! Step 2, `process_payment`: charges the card of an order whose stock is reserved.

use std::collections::HashMap;

use contracts::{
    OrderId, PAYMENT,
    order_fulfillment::{PROCESS_PAYMENT, PaymentFailed, PaymentProcessed, StockReserved},
};
use messaging::{Batch, Committed, Delivery, StepError, UnitOfWork, inbox, retry_contended};
use saga::{Event, Status, StepStatus, Transition};
use saga_store::{Recorded, Sagas};
use uuid::Uuid;

use super::{Finding, Found, Next, ask_and_settle, of_a_saga};
use crate::{
    App,
    domain::{self, Plan, Settled, Tell},
    store::{self, NewPayment, StoredPayment},
};

/// Charges once: `PaymentProcessed`, or `PaymentFailed` when the card is declined. An order that was cancelled
/// or timed out is not charged, and if it is charged all the same its refund is on its way.
pub async fn process_payment(app: App, batch: Batch<StockReserved>) -> Result<Committed, StepError> {
    let (deliveries, committed) = of_a_saga(batch);
    let next = retry_contended(|| prepare(&app, &deliveries)).await?;
    let todo = deliveries.into_iter().zip(next).collect();
    Ok(committed.and(ask_and_settle(&app, &PROCESS_PAYMENT, todo, settle).await?))
}

/// Writes down, before anybody is asked, which orders are about to be charged under which key.
async fn prepare(app: &App, deliveries: &[Delivery<StockReserved>]) -> Result<Vec<Next>, StepError> {
    let event_ids: Vec<Uuid> = deliveries.iter().map(|d| d.meta.event_id).collect();
    let saga_ids: Vec<Uuid> = deliveries.iter().filter_map(|d| d.meta.saga_id()).collect();
    let orders: Vec<OrderId> = deliveries.iter().map(|d| d.event.order_id).collect();
    let mut work = app.participant.outbox.begin().await?;
    let had = inbox::already_had(work.conn(), &PROCESS_PAYMENT.consumer(), &event_ids).await?;
    let sagas = store::saga_statuses(work.conn(), &saga_ids).await?;
    let moves_forward = |d: &Delivery<StockReserved>| {
        d.meta.saga_id().and_then(|id| sagas.get(&id)).copied().is_some_and(Status::moves_forward)
    };
    let fresh = |d: &&Delivery<StockReserved>| !had.contains(&d.meta.event_id);
    let intents: Vec<NewPayment> =
        deliveries.iter().filter(fresh).filter(|d| moves_forward(d)).filter_map(new_payment).collect();
    store::insert_intents(work.conn(), &intents).await?;
    let payments = store::payments_of(work.conn(), &orders).await?;
    work.commit_intent().await?;
    let next = deliveries.iter().map(|delivery| {
        let stored = payments.get(&delivery.event.order_id);
        let plan = match fresh(&delivery) {
            true => {
                let amount = delivery.event.total.amount;
                domain::plan_charge(stored.map(|s| &s.payment), moves_forward(delivery), amount)
            }
            false => Plan::Skip("a repeated delivery"),
        };
        Next::of(plan, stored)
    });
    Ok(next.collect())
}

fn new_payment(delivery: &Delivery<StockReserved>) -> Option<NewPayment> {
    let StockReserved { order_id, total, payment_method, .. } = &delivery.event;
    let saga_id = delivery.meta.saga_id()?;
    Some(NewPayment { order_id: *order_id, saga_id, amount: *total, method: payment_method.clone() })
}

/// One transaction for the deliveries whose answers are there.
async fn settle(app: App, found: Vec<Found<StockReserved>>) -> Result<Committed, StepError> {
    let findings: HashMap<Uuid, Finding> =
        found.iter().map(|f| (f.delivery.meta.event_id, f.finding.clone())).collect();
    let batch = Batch::new(&PROCESS_PAYMENT.step, found.into_iter().map(|f| f.delivery).collect());
    let (mut work, deliveries) = app.participant.outbox.claim(batch).await?;
    let saga_ids = deliveries.iter().filter_map(|d| d.meta.saga_id());
    let mut sagas = saga_store::lock(work.conn(), app.participant.definition, PAYMENT, saga_ids).await?;
    let orders: Vec<OrderId> = deliveries.iter().map(|d| d.event.order_id).collect();
    let mut payments = store::lock_payments(work.conn(), &orders).await?;
    for delivery in &deliveries {
        let moves_forward = sagas.moves_forward(delivery.meta.saga_id());
        let payment = payments.get_mut(&delivery.event.order_id);
        match (findings.get(&delivery.meta.event_id), payment) {
            (Some(Finding::NotAsked(reason)), _) => skip(&mut sagas, delivery, reason)?,
            (Some(Finding::Answer(answer)), Some(stored)) => {
                let settled = domain::settle_charge(&stored.payment, answer, moves_forward)?;
                app.declines.count(&mut work, &settled.tell);
                apply(&mut work, &mut sagas, delivery, stored, settled)?;
            }
            (_, _) => return Err(StepError::failed("a payment was asked for that is not there")),
        }
    }
    store::save_payments(work.conn(), &store::changed(&payments)).await?;
    sagas.save(&mut work).await?;
    work.commit().await
}

/// Changes the payment and says what there is to say.
fn apply(
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    delivery: &Delivery<StockReserved>,
    stored: &mut StoredPayment,
    settled: Settled,
) -> Result<(), StepError> {
    stored.becomes(settled.status);
    let (order_id, payment_id, amount) = (stored.order_id, stored.payment_id, stored.amount);
    match settled.tell {
        Tell::Processed(reference) => {
            let event = PaymentProcessed { order_id, payment_id, amount, gateway_reference: reference.0 };
            let advance = Transition::Advance { step: PROCESS_PAYMENT.number };
            say(work, sagas, delivery, stored, &event, (StepStatus::Completed, advance, None))
        }
        Tell::Failed(code) => {
            let reason = format!("declined: {}", code.0);
            let event = PaymentFailed { order_id, payment_id, amount, decline_code: code.0 };
            say(work, sagas, delivery, stored, &event, (StepStatus::Failed, Transition::Stay, Some(reason)))
        }
        Tell::Nothing(reason) => skip(sagas, delivery, reason),
    }
}

fn say<E: Event>(
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    delivery: &Delivery<StockReserved>,
    stored: &mut StoredPayment,
    event: &E,
    (status, transition, reason): (StepStatus, Transition, Option<String>),
) -> Result<(), StepError> {
    let context = delivery.meta.context();
    let event_id = work.publish(&PROCESS_PAYMENT, &context, stored.next_event(), event)?;
    let event_type = E::TYPE.wire_name();
    let recorded =
        Recorded { step: &PROCESS_PAYMENT, status, transition, event_type, event_id: Some(event_id), reason };
    sagas.record(&context, recorded)
}

fn skip(sagas: &mut Sagas, delivery: &Delivery<StockReserved>, reason: &str) -> Result<(), StepError> {
    sagas.skip(&delivery.meta.context(), &PROCESS_PAYMENT, StockReserved::TYPE.wire_name(), reason)
}
