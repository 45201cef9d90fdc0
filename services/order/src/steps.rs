//! The saga's steps in the order service that events trigger, and cancellation on request: one function per step,
//! named as the step. Placing an order is in [`placement`](crate::placement), the compensation deadline in
//! [`compensation`](crate::compensation).

use contracts::{
    OrderId,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CANCEL_TIMED_OUT_ORDER, CANCEL_UNFILLABLE_ORDER, CANCEL_UNPAID_ORDER, CONFIRM_ORDER,
        CancelReason, OrderCancelled, OrderConfirmed, PaymentFailed, PaymentProcessed, SagaTimedOut,
        StockReservationFailed,
    },
};
use messaging::{Batch, Context, StepError, StepResult};
use saga::{Event, StepOn};
use saga_store::{Cause, Request, StepTransaction};
use uuid::Uuid;

use crate::{
    App,
    domain::{self, CancelRequest, Cancellation, Ending, OrderStatus},
    orchestration,
    store::{self, EndedOrder, OrderRow},
};

const UNKNOWN: &str = "the order is not known";

/// Step 3, the pivot: confirms a paid order. A payment of another amount is a dead letter, and the saga runs until its
/// deadline.
pub(crate) async fn confirm_order(app: App, batch: Batch<PaymentProcessed>) -> StepResult {
    let mut tx = app.participant.step(&CONFIRM_ORDER, batch).await?;
    let payments = tx.deliveries();
    let mut orders = store::lock_orders(tx.conn(), payments.iter().map(|p| p.event.order_id)).await?;
    let mut confirmed = Vec::new();
    for payment in payments.iter() {
        let Some(order) = orders.get_mut(&payment.event.order_id) else {
            tx.skip(payment, UNKNOWN)?;
            continue;
        };
        let (order_id, total) = (order.order_id, order.total);
        if let Err(wrong) = domain::paid_in_full(payment.event.amount, total) {
            tx.defer(payment, StepError::Poison(wrong.into()));
            continue;
        }
        match domain::confirm(order.status, tx.status(payment)) {
            Ending::Apply => {
                let event = OrderConfirmed { order_id, customer_id: order.customer_id.clone(), total };
                tx.complete(payment, order.version + 1, &event)?;
                tx.after_commit(app.ends.confirmed(total));
                confirmed.push(order.end(OrderStatus::Confirmed, None));
            }
            Ending::Skip(reason) => tx.skip(payment, reason)?,
        }
    }
    store::end_orders(tx.conn(), OrderStatus::Confirmed, &confirmed).await?;
    tx.commit().await
}

/// Inventory refused the order.
pub(crate) async fn cancel_unfillable_order(app: App, batch: Batch<StockReservationFailed>) -> StepResult {
    cancel(app, &CANCEL_UNFILLABLE_ORDER, batch, |e| (e.order_id, CancelReason::OutOfStock, e.reason.clone())).await
}

/// The card was declined.
pub(crate) async fn cancel_unpaid_order(app: App, batch: Batch<PaymentFailed>) -> StepResult {
    let detail = |e: &PaymentFailed| format!("the payment was refused: {}", e.decline_code);
    cancel(app, &CANCEL_UNPAID_ORDER, batch, |e| (e.order_id, CancelReason::PaymentRefused, detail(e))).await
}

/// The saga timed out.
pub(crate) async fn cancel_timed_out_order(app: App, batch: Batch<SagaTimedOut>) -> StepResult {
    let detail = |e: &SagaTimedOut| format!("no end by the deadline, after step {}", e.current_step);
    cancel(app, &CANCEL_TIMED_OUT_ORDER, batch, |e| (e.order_id, CancelReason::TimedOut, detail(e))).await
}

/// Cancels the orders; `why` extracts order, reason and detail from an event.
async fn cancel<E: Event>(
    app: App,
    step: &'static StepOn<E>,
    batch: Batch<E>,
    why: impl Fn(&E) -> (OrderId, CancelReason, String),
) -> StepResult {
    let mut tx = app.participant.step(step, batch).await?;
    let causes = tx.deliveries();
    let mut orders = store::lock_orders(tx.conn(), causes.iter().map(|cause| why(&cause.event).0)).await?;
    let mut cancelled = Vec::new();
    for cause in causes.iter() {
        let (order_id, reason, detail) = why(&cause.event);
        let Some(order) = orders.get_mut(&order_id) else {
            tx.skip(cause, UNKNOWN)?;
            continue;
        };
        match domain::cancel(order.status, tx.status(cause)) {
            Ending::Apply => cancelled.push(cancel_order(&app, &mut tx, cause, order, reason, &detail)?),
            Ending::Skip(reason) => tx.skip(cause, reason)?,
        }
    }
    store::end_orders(tx.conn(), OrderStatus::Cancelled, &cancelled).await?;
    tx.commit().await
}

/// Handles a request to cancel; none when there is no such order.
pub(crate) async fn cancel_order_on_request(
    app: &App,
    context: &Context,
    order_id: Uuid,
    reason: &str,
) -> Result<Option<CancelRequest>, StepError> {
    let mut tx = app.participant.step_by_request(&CANCEL_ORDER_ON_REQUEST).await?;
    let Some(saga_id) = store::saga_of(tx.conn(), order_id).await? else { return Ok(None) };
    if !app.twin.own(&mut tx, &[saga_id]).await?.is_empty() {
        drop(tx);
        return orchestration::cancel(app, context, (OrderId(order_id), saga_id), reason).await;
    }
    let request = Request { saga_id, context: context.clone() };
    let mut tx = tx.lock(vec![request.clone()]).await?;
    let mut orders = store::lock_orders(tx.conn(), [OrderId(order_id)]).await?;
    let Some(order) = orders.get_mut(&OrderId(order_id)) else { return Ok(None) };
    let outcome = domain::cancel_on_request(order.status, tx.status(&request), tx.is_past_pivot(&request));
    if outcome == CancelRequest::Apply {
        let cancelled = cancel_order(app, &mut tx, &request, order, CancelReason::CustomerRequest, reason)?;
        store::end_orders(tx.conn(), OrderStatus::Cancelled, &[cancelled]).await?;
        tx.commit().await?;
    } else {
        tx.commit_unchanged().await?;
    }
    Ok(Some(outcome))
}

/// Cancels one locked order, and starts the compensation of its saga. The caller writes the returned end.
pub(crate) fn cancel_order<C: Cause>(
    app: &App,
    tx: &mut StepTransaction<C>,
    cause: &C,
    order: &mut OrderRow,
    reason: CancelReason,
    detail: &str,
) -> Result<EndedOrder, StepError> {
    tx.compensate(cause, order.version + 1, &cancelled(order, reason, detail), detail)?;
    tx.after_commit(app.ends.cancelled(reason));
    let cancellation = Cancellation { reason: Some(reason), detail: detail.to_owned() };
    Ok(order.end(OrderStatus::Cancelled, Some(cancellation)))
}

/// The event that makes the participants undo their steps.
pub(crate) fn cancelled(order: &OrderRow, reason: CancelReason, detail: &str) -> OrderCancelled {
    OrderCancelled {
        order_id: order.order_id,
        customer_id: order.customer_id.clone(),
        reason,
        detail: detail.to_owned(),
        total: order.total,
        payment_method: order.payment_method.clone(),
    }
}
