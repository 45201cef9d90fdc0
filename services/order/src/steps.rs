//! The saga's steps in the order service: one function per step, named as the step is.

use std::collections::HashMap;

use contracts::{
    Currency, Money, ORDER, OrderId,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CANCEL_TIMED_OUT_ORDER, CANCEL_UNFILLABLE_ORDER, CANCEL_UNPAID_ORDER, CONFIRM_ORDER,
        CancelReason, OrderCancelled, OrderConfirmed, PaymentFailed, PaymentProcessed, SagaTimedOut,
        StockReservationFailed,
    },
};
use messaging::{Batch, Committed, Context, Delivery, Outbox, StepError, UnitOfWork};
use saga::{Event, SagaDefinition, Step, StepOn, StepStatus, Transition};
use saga_store::{Recorded, Sagas};
use uuid::Uuid;

use crate::{
    App,
    domain::{self, CancelRequest, Ending, OrderStatus},
    store::{self, OrderRow},
};

/// Step 3, the pivot: paid, so the order is the customer's. A payment of another amount is a dead letter, and the order
/// goes on towards its deadline.
pub(crate) async fn confirm_order(app: App, batch: Batch<PaymentProcessed>) -> Result<Committed, StepError> {
    let (mut work, payments) = app.participant.outbox.claim(batch).await?;
    let mut sagas = lock_sagas(&app, &mut work, &payments).await?;
    let mut orders = lock_orders(&mut work, payments.iter().map(|d| d.event.order_id)).await?;
    let mut confirmed = Vec::new();
    for Delivery { event, meta } in &payments {
        let context = meta.context();
        let order = orders.get_mut(&event.order_id.0);
        if let Some(order) = order.as_deref() {
            domain::paid_in_full(event.amount, total_of(order)?).map_err(|wrong| StepError::Poison(wrong.into()))?;
        }
        let status = order.as_deref().and_then(status_of);
        match (domain::confirm(status, sagas.status(meta.saga_id())), order) {
            (Ending::Apply, Some(order)) => {
                let said = OrderConfirmed {
                    order_id: event.order_id,
                    customer_id: order.customer_id.clone(),
                    total: total_of(order)?,
                };
                let event_id = work.publish(&CONFIRM_ORDER, &context, order.version + 1, &said)?;
                sagas.record(
                    &context,
                    Recorded {
                        step: &CONFIRM_ORDER,
                        status: StepStatus::Completed,
                        transition: Transition::Complete { step: CONFIRM_ORDER.number },
                        event_type: OrderConfirmed::TYPE.wire_name(),
                        event_id: Some(event_id),
                        reason: None,
                    },
                )?;
                OrderStatus::Confirmed.as_str().clone_into(&mut order.status);
                confirmed.push(order.order_id);
                let (revenue, total) = (app.revenue.clone(), said.total);
                work.after_commit(move |_| revenue.add(total));
            }
            (Ending::Skip(reason), _) => {
                sagas.skip(&context, &CONFIRM_ORDER, PaymentProcessed::TYPE.wire_name(), reason)?;
            }
            (Ending::Apply, None) => return Err(StepError::failed("an order was confirmed that is not there")),
        }
    }
    if !confirmed.is_empty() {
        store::end_orders(work.conn(), &confirmed, OrderStatus::Confirmed, None).await?;
    }
    sagas.save(&mut work).await?;
    work.commit().await
}

/// Inventory could not fill the order.
pub(crate) async fn cancel_unfillable_order(
    app: App,
    batch: Batch<StockReservationFailed>,
) -> Result<Committed, StepError> {
    cancel(app, &CANCEL_UNFILLABLE_ORDER, batch, |e| (e.order_id, CancelReason::OutOfStock, e.reason.clone())).await
}

/// The card was declined.
pub(crate) async fn cancel_unpaid_order(app: App, batch: Batch<PaymentFailed>) -> Result<Committed, StepError> {
    let why = |e: &PaymentFailed| {
        (e.order_id, CancelReason::PaymentRefused, format!("the payment was refused: {}", e.decline_code))
    };
    cancel(app, &CANCEL_UNPAID_ORDER, batch, why).await
}

/// Somebody noticed that the deadline has passed.
pub(crate) async fn cancel_timed_out_order(app: App, batch: Batch<SagaTimedOut>) -> Result<Committed, StepError> {
    let why = |e: &SagaTimedOut| {
        (e.order_id, CancelReason::TimedOut, format!("no end by the deadline, after step {}", e.current_step))
    };
    cancel(app, &CANCEL_TIMED_OUT_ORDER, batch, why).await
}

/// Why an event cancels which order.
type Why<E> = fn(&E) -> (OrderId, CancelReason, String);

async fn cancel<E: Event>(
    app: App,
    step: &'static StepOn<E>,
    batch: Batch<E>,
    why: Why<E>,
) -> Result<Committed, StepError> {
    let (mut work, causes) = app.participant.outbox.claim(batch).await?;
    let mut sagas = lock_sagas(&app, &mut work, &causes).await?;
    let mut orders = lock_orders(&mut work, causes.iter().map(|d| why(&d.event).0)).await?;
    for Delivery { event, meta } in &causes {
        let (order_id, reason, detail) = why(event);
        let context = meta.context();
        let order = orders.get_mut(&order_id.0);
        let status = order.as_deref().and_then(status_of);
        match (domain::cancel(status, sagas.status(meta.saga_id())), order) {
            (Ending::Apply, Some(order)) => {
                cancel_order(&mut work, &mut sagas, step, &context, order, reason, &detail).await?;
            }
            (Ending::Skip(reason), _) => sagas.skip(&context, step, E::TYPE.wire_name(), reason)?,
            (Ending::Apply, None) => return Err(StepError::failed("an order was cancelled that is not there")),
        }
    }
    sagas.save(&mut work).await?;
    work.commit().await
}

/// Cancels one locked order: publishes `OrderCancelled`, and the saga compensates.
pub(crate) async fn cancel_order(
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    step: &Step,
    context: &Context,
    order: &mut OrderRow,
    reason: CancelReason,
    detail: &str,
) -> Result<(), StepError> {
    let event_id = work.publish(step, context, order.version + 1, &cancelled(order, reason, detail)?)?;
    let by_customer = reason == CancelReason::CustomerRequest;
    sagas.record(
        context,
        Recorded {
            step,
            status: StepStatus::Completed,
            transition: Transition::Compensate { by_customer },
            event_type: OrderCancelled::TYPE.wire_name(),
            event_id: Some(event_id),
            reason: Some(detail.to_owned()),
        },
    )?;
    store::end_orders(work.conn(), &[order.order_id], OrderStatus::Cancelled, Some(detail)).await?;
    OrderStatus::Cancelled.as_str().clone_into(&mut order.status);
    Ok(())
}

/// The event that tells everybody to undo the order.
pub(crate) fn cancelled(order: &OrderRow, reason: CancelReason, detail: &str) -> Result<OrderCancelled, StepError> {
    Ok(OrderCancelled {
        order_id: OrderId(order.order_id),
        customer_id: order.customer_id.clone(),
        reason,
        detail: detail.to_owned(),
        total: total_of(order)?,
        payment_method: order.payment_method.clone(),
    })
}

/// What a request to cancel came to; none when there is no such order.
pub(crate) async fn cancel_order_on_request(
    outbox: &Outbox,
    definition: &'static SagaDefinition,
    context: &Context,
    order_id: Uuid,
    reason: &str,
) -> Result<Option<CancelRequest>, StepError> {
    let mut work = outbox.begin().await?;
    let Some(saga_id) = store::saga_of(work.conn(), order_id).await? else { return Ok(None) };
    let mut sagas = saga_store::lock(work.conn(), definition, ORDER, [saga_id]).await?;
    let context = context.clone().in_saga(saga_id, definition.saga_type).with_baggage(sagas.baggage(saga_id));
    let mut orders = lock_orders(&mut work, [OrderId(order_id)]).await?;
    let Some(order) = orders.get_mut(&order_id) else { return Ok(None) };
    let status = status_of(order).ok_or_else(|| StepError::failed("the order has an unknown status"))?;
    let request = domain::cancel_on_request(status, sagas.status(Some(saga_id)));
    if request == CancelRequest::Apply {
        let why = CancelReason::CustomerRequest;
        cancel_order(&mut work, &mut sagas, &CANCEL_ORDER_ON_REQUEST, &context, order, why, reason).await?;
        sagas.save(&mut work).await?;
        work.commit().await?;
    }
    Ok(Some(request))
}

async fn lock_sagas<E>(app: &App, work: &mut UnitOfWork, batch: &[Delivery<E>]) -> Result<Sagas, StepError> {
    let ids = batch.iter().filter_map(|d| d.meta.saga_id());
    saga_store::lock(work.conn(), app.participant.definition, ORDER, ids).await
}

pub(crate) async fn lock_orders(
    work: &mut UnitOfWork,
    ids: impl IntoIterator<Item = OrderId>,
) -> Result<HashMap<Uuid, OrderRow>, StepError> {
    let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
    let rows = store::lock_orders(work.conn(), &ids).await?;
    Ok(rows.into_iter().map(|row| (row.order_id, row)).collect())
}

fn status_of(order: &OrderRow) -> Option<OrderStatus> {
    OrderStatus::parse(&order.status)
}

fn total_of(order: &OrderRow) -> Result<Money, StepError> {
    let currency: Currency = order.currency.parse().map_err(StepError::failed)?;
    Ok(Money::new(order.total_amount, currency))
}
