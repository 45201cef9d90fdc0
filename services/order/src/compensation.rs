//! The second deadline: a timed-out order that nobody cancelled is cancelled here; a compensation whose
//! receipts are overdue is driven again, and given up after the last attempt, until an operator resumes it or the receipts
//! come after all. The participants answer again without acting twice. Nothing is driven, and no attempt counted, while the
//! cancellation before is still on its way.

use std::collections::HashMap;

use contracts::{
    OrderId,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CancelReason, DRIVE_COMPENSATION, OrderCancelled, PROCESS_PAYMENT, RESERVE_STOCK,
    },
};
use messaging::{StepError, housekeeping::every, retry_contended};
use saga::{Event, Status};
use saga_store::{
    StepTransaction,
    compensation::{self, Overdue},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Drive, Ending, OrderStatus},
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
                    tracing::warn!(%error, "overdue compensations could not be driven and will be looked for again");
                    break;
                }
            }
        }
    })
    .await;
}

/// One batch of overdue sagas; returns how many there were. Each of them is overdue again later at the earliest.
pub async fn drive_compensation(app: &App) -> Result<usize, StepError> {
    let definition = app.participant.definition;
    // Before the transaction, which must not wait for the broker.
    let stream = app.participant.bus.own_stream().await;
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
        let what = domain::drive(status, waits, saga.attempts.unsigned_abs(), definition.compensation.max_attempts);
        let driven = match (what, orders.get_mut(&OrderId(saga.business_key))) {
            (Drive::Wait, _) => {
                tx.leave(saga);
                later.push(saga.saga_id);
                continue;
            }
            (Drive::GiveUp, _) => give_up(&mut tx, saga),
            (_, None) => Err(StepError::failed("its order is not there")),
            (Drive::Cancel, Some(order)) => cancel(&mut tx, saga, order).map(|order| cancelled.push(order)),
            (Drive::Again, Some(order)) => {
                let reason = format!("the receipts are overdue, attempt {}", saga.attempts + 1);
                tx.drive_again(saga, order.version, &cancelled_before(saga, order), reason)
            }
        };
        // One saga that cannot be driven holds up no other.
        if let Err(StepError::Failed(error)) = driven {
            tracing::error!(saga_id = %saga.saga_id, %error, "a compensation cannot be driven: somebody has to look");
            tx.leave(saga);
            later.push(saga.saga_id);
        } else {
            driven?;
        }
    }
    store::end_orders(tx.conn(), OrderStatus::Cancelled, &cancelled).await?;
    let wait = definition.compensation.deadline.max(app.config.compensation_check_every);
    compensation::postpone(tx.conn(), &later, wait).await?;
    tx.commit().await?;
    Ok(overdue.len())
}

/// What resuming came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumed {
    Driven,
    /// It is neither stuck nor compensating, but this.
    Refused(Status),
    Unknown,
}

/// An operator drives the compensations of these sagas again; what came of each of them that is known.
pub(crate) async fn resume(app: &App, saga_ids: &[Uuid], why: &str) -> Result<HashMap<Uuid, Resumed>, StepError> {
    let mut tx = app.participant.step_by_request(&DRIVE_COMPENSATION).await?;
    let named = compensation::named(tx.conn(), saga_ids).await?;
    let mut tx = tx.lock(named).await?;
    let named = tx.causes();
    let orders = store::lock_orders(tx.conn(), named.iter().map(|saga| OrderId(saga.business_key))).await?;
    let mut outcomes = HashMap::with_capacity(named.len());
    for saga in named.iter() {
        let outcome = match tx.status(saga) {
            Some(status) if domain::may_resume(status) => {
                let order = orders.get(&OrderId(saga.business_key));
                let order = order.ok_or_else(|| StepError::failed("the saga's order is not there"))?;
                tx.resume(saga, order.version, &cancelled_before(saga, order), why.to_owned())?;
                Resumed::Driven
            }
            other => {
                tx.leave(saga);
                other.map_or(Resumed::Unknown, Resumed::Refused)
            }
        };
        outcomes.insert(saga.saga_id, outcome);
    }
    tx.commit().await?;
    Ok(outcomes)
}

/// Cancels an order that timed out and that nobody cancelled.
fn cancel(tx: &mut StepTransaction<Overdue>, saga: &Overdue, order: &mut OrderRow) -> Result<EndedOrder, StepError> {
    match domain::cancel(order.status, tx.status(saga)) {
        Ending::Apply => steps::cancel_order(tx, saga, order, CancelReason::TimedOut, "no end by the deadline"),
        Ending::Skip(reason) => Err(StepError::failed(reason)),
    }
}

/// The cancellation of an order that is cancelled, to be published once more.
fn cancelled_before(saga: &Overdue, order: &OrderRow) -> OrderCancelled {
    let cancellation = order.cancellation.as_ref();
    let reason = cancellation.and_then(|c| c.reason).unwrap_or_else(|| reason_by_step(saga));
    steps::cancelled(order, reason, cancellation.map(|c| c.detail.as_str()).unwrap_or_default())
}

/// Why an order without a code was cancelled, as a build before 0005_cancel_code wrote it: the step at which the saga turned
/// says it.
fn reason_by_step(saga: &Overdue) -> CancelReason {
    match saga.failed_at_step.as_deref() {
        Some(step) if step == RESERVE_STOCK.name => CancelReason::OutOfStock,
        Some(step) if step == PROCESS_PAYMENT.name => CancelReason::PaymentRefused,
        Some(step) if step == CANCEL_ORDER_ON_REQUEST.name => CancelReason::CustomerRequest,
        _ => CancelReason::TimedOut,
    }
}

fn give_up(tx: &mut StepTransaction<Overdue>, saga: &Overdue) -> Result<(), StepError> {
    tracing::error!(saga_id = %saga.saga_id, attempts = saga.attempts, "a compensation is stuck: somebody has to look");
    tx.give_up(saga, format!("no receipts after {} attempts", saga.attempts))
}
