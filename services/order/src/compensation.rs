//! The compensation deadline. A timed-out order that is not cancelled yet is cancelled here. A compensation whose receipts
//! (the participants' undo confirmations) are overdue is retried; after the last attempt its saga is FAILED, until an operator
//! resumes it or the receipts arrive late. Participants send their receipts again without acting twice. No retry is made or
//! counted while the previous cancellation is not delivered.

use std::collections::HashMap;

use contracts::{
    OrderId,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CancelReason, DRIVE_COMPENSATION, OrderCancelled, PROCESS_PAYMENT, RESERVE_STOCK,
    },
};
use messaging::{StepError, periodic::every, retry_contended};
use saga::{Event, Status};
use saga_store::{
    StepTransaction,
    compensation::{self, Overdue},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Ending, OrderStatus, OverdueAction},
    steps,
    store::{self, EndedOrder, OrderRow},
};

const BATCH: i64 = 100;

pub(crate) async fn run(app: App, stop: CancellationToken) {
    every(app.config.compensation_check_every, &stop, || async {
        while !stop.is_cancelled() {
            match retry_contended(|| drive_compensation(&app)).await {
                Ok(found) if found == BATCH.unsigned_abs() as usize => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "retrying overdue compensations failed; it is repeated in the next round");
                    break;
                }
            }
        }
    })
    .await;
}

/// Handles one batch of overdue sagas; returns how many there were. None of them is overdue again at once.
pub async fn drive_compensation(app: &App) -> Result<usize, StepError> {
    let definition = app.participant.definition;
    // Before the transaction, which must not wait for the broker.
    let readers = compensation::readers(definition, OrderCancelled::TYPE).map(|(_, consumer)| consumer);
    let stream = app.participant.bus.own_stream(readers).await;
    let mut tx = app.participant.step_by_deadline(&DRIVE_COMPENSATION).await?;
    let overdue = compensation::overdue(tx.conn(), definition, BATCH).await?;
    if overdue.is_empty() {
        return Ok(0);
    }
    let under_way = compensation::under_way(&mut tx, OrderCancelled::TYPE, &overdue, stream.as_ref()).await?;
    let mut tx = tx.lock(overdue).await?;
    let overdue = tx.causes();
    let mut orders = store::lock_orders(tx.conn(), overdue.iter().map(|saga| OrderId(saga.business_key))).await?;
    let (mut cancelled, mut later) = (Vec::new(), Vec::new());
    for saga in overdue.iter() {
        let (status, waits) = (tx.status(saga), under_way.contains(&saga.saga_id));
        let max_attempts = definition.compensation.max_attempts;
        let what = domain::overdue_action(status, waits, saga.attempts.unsigned_abs(), max_attempts);
        let handled = match (what, orders.get_mut(&OrderId(saga.business_key))) {
            (OverdueAction::Wait, _) => {
                tx.leave(saga);
                later.push(saga.saga_id);
                continue;
            }
            (OverdueAction::GiveUp, _) => give_up(&mut tx, saga),
            (_, None) => Err(StepError::failed("its order does not exist")),
            (OverdueAction::Cancel, Some(order)) => {
                cancel(app, &mut tx, saga, order).map(|order| cancelled.push(order))
            }
            (OverdueAction::Retry, Some(order)) => {
                let reason = format!("the receipts are overdue, attempt {}", saga.attempts + 1);
                tx.retry_compensation(saga, order.version, &cancelled_before(saga, order), reason)
            }
        };
        // A defective saga must not block the others.
        if let Err(StepError::Failed(error)) = handled {
            tracing::error!(saga_id = %saga.saga_id, %error, "a compensation cannot be retried; operator action required");
            tx.leave(saga);
            later.push(saga.saga_id);
        } else {
            handled?;
        }
    }
    store::end_orders(tx.conn(), OrderStatus::Cancelled, &cancelled).await?;
    let wait = definition.compensation.deadline.max(app.config.compensation_check_every);
    compensation::postpone(tx.conn(), &later, wait).await?;
    tx.commit().await?;
    Ok(overdue.len())
}

/// The outcome of resuming a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumeOutcome {
    Resumed,
    /// It is neither FAILED nor COMPENSATING; has its status.
    Refused(Status),
    Unknown,
}

/// Retries the compensations of these sagas on an operator's request; returns the outcome of each known saga that is choreographed.
pub(crate) async fn resume(app: &App, saga_ids: &[Uuid], why: &str) -> Result<HashMap<Uuid, ResumeOutcome>, StepError> {
    let mut tx = app.participant.step_by_request(&DRIVE_COMPENSATION).await?;
    let orchestrated = app.twin.own(&mut tx, saga_ids).await?;
    let saga_ids: Vec<Uuid> = saga_ids.iter().copied().filter(|saga_id| !orchestrated.contains(saga_id)).collect();
    let sagas = compensation::lock_by_ids(tx.conn(), &saga_ids).await?;
    let mut tx = tx.lock(sagas).await?;
    let sagas = tx.causes();
    let orders = store::lock_orders(tx.conn(), sagas.iter().map(|saga| OrderId(saga.business_key))).await?;
    let mut outcomes = HashMap::with_capacity(sagas.len());
    for saga in sagas.iter() {
        let outcome = match tx.status(saga) {
            Some(status) if domain::may_resume(status) => {
                let order = orders.get(&OrderId(saga.business_key));
                let order = order.ok_or_else(|| StepError::failed("the saga's order does not exist"))?;
                tx.resume(saga, order.version, &cancelled_before(saga, order), why.to_owned())?;
                ResumeOutcome::Resumed
            }
            other => {
                tx.leave(saga);
                other.map_or(ResumeOutcome::Unknown, ResumeOutcome::Refused)
            }
        };
        outcomes.insert(saga.saga_id, outcome);
    }
    tx.commit().await?;
    Ok(outcomes)
}

/// Cancels an order whose saga timed out without being cancelled.
fn cancel(
    app: &App,
    tx: &mut StepTransaction<Overdue>,
    saga: &Overdue,
    order: &mut OrderRow,
) -> Result<EndedOrder, StepError> {
    match domain::cancel(order.status, tx.status(saga)) {
        Ending::Apply => steps::cancel_order(app, tx, saga, order, CancelReason::TimedOut, "no end by the deadline"),
        Ending::Skip(reason) => Err(StepError::failed(reason)),
    }
}

/// The event of an existing cancellation, to be published again.
fn cancelled_before(saga: &Overdue, order: &OrderRow) -> OrderCancelled {
    let cancellation = order.cancellation.as_ref();
    let reason = cancellation.and_then(|c| c.reason).unwrap_or_else(|| reason_by_step(saga));
    steps::cancelled(order, reason, cancellation.map(|c| c.detail.as_str()).unwrap_or_default())
}

/// The reason of a cancellation without a code, which builds before 0005_cancel_code wrote: derived from the saga's failed step.
fn reason_by_step(saga: &Overdue) -> CancelReason {
    match saga.failed_at_step.as_deref() {
        Some(step) if step == RESERVE_STOCK.name => CancelReason::OutOfStock,
        Some(step) if step == PROCESS_PAYMENT.name => CancelReason::PaymentRefused,
        Some(step) if step == CANCEL_ORDER_ON_REQUEST.name => CancelReason::CustomerRequest,
        _ => CancelReason::TimedOut,
    }
}

fn give_up(tx: &mut StepTransaction<Overdue>, saga: &Overdue) -> Result<(), StepError> {
    tracing::error!(saga_id = %saga.saga_id, attempts = saga.attempts, "compensation retries exhausted; operator action required");
    tx.give_up(saga, format!("no receipts after {} attempts", saga.attempts))
}
