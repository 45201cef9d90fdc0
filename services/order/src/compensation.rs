//! The second deadline: a timed-out order that nobody cancelled is cancelled here; a compensation whose
//! receipts are overdue is driven again, and given up after the last attempt, until an operator resumes it. The participants answer again without
//! acting twice.

use contracts::{
    ORDER, OrderId,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CancelReason, DRIVE_COMPENSATION, OrderCancelled, PROCESS_PAYMENT, RESERVE_STOCK,
    },
};
use messaging::{StepError, UnitOfWork, housekeeping::every, retry_contended};
use saga::{Event, Status, StepStatus, Transition};
use saga_store::{Recorded, Sagas, compensation::Overdue};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Drive},
    steps,
    store::OrderRow,
};

const BATCH: i64 = 100;

pub(crate) async fn run(app: App, stop: CancellationToken) {
    every(app.config.compensation_check_every, &stop, || async {
        if let Err(error) = retry_contended(|| drive_overdue_compensations(&app)).await {
            tracing::warn!(%error, "overdue compensations could not be driven and will be looked for again");
        }
    })
    .await;
}

/// One batch of overdue sagas; returns how many there were.
pub async fn drive_overdue_compensations(app: &App) -> Result<usize, StepError> {
    let definition = app.participant.definition;
    let mut work = app.participant.outbox.begin().await?;
    let overdue = saga_store::compensation::overdue(work.conn(), definition, BATCH).await?;
    if overdue.is_empty() {
        return Ok(0);
    }
    let ids = overdue.iter().map(|o| o.saga_id);
    let mut sagas = saga_store::lock(work.conn(), definition, ORDER, ids).await?;
    let mut orders = steps::lock_orders(&mut work, overdue.iter().map(|o| OrderId(o.business_key))).await?;
    for saga in &overdue {
        let status = sagas.status(Some(saga.saga_id));
        let what = domain::drive(status, saga.attempts.unsigned_abs(), definition.compensation.max_attempts);
        let driven = match (what, orders.get_mut(&saga.business_key)) {
            (Drive::GiveUp, _) => give_up(app, &mut sagas, saga),
            (_, None) => Err(StepError::failed("its order is not there")),
            (Drive::Cancel, Some(order)) => cancel(app, &mut work, &mut sagas, saga, order).await,
            (Drive::Again, Some(order)) => {
                let reason = format!("the receipts are overdue, attempt {}", saga.attempts + 1);
                publish_again(app, &mut work, &mut sagas, saga, order, Transition::DriveAgain, reason)
            }
        };
        // One saga that cannot be driven holds up no other.
        if let Err(StepError::Failed(error)) = driven {
            tracing::error!(saga_id = %saga.saga_id, %error, "a compensation cannot be driven: somebody has to look");
        } else {
            driven?;
        }
    }
    sagas.save(&mut work).await?;
    work.commit().await?;
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

/// An operator drives the compensation of a stuck saga again.
pub(crate) async fn resume(app: &App, saga_id: Uuid) -> Result<Resumed, StepError> {
    let definition = app.participant.definition;
    let mut work = app.participant.http_outbox.begin().await?;
    let Some(saga) = saga_store::compensation::named(work.conn(), saga_id).await? else {
        return Ok(Resumed::Unknown);
    };
    let mut sagas = saga_store::lock(work.conn(), definition, ORDER, [saga_id]).await?;
    match sagas.status(Some(saga_id)) {
        Some(status) if domain::may_resume(status) => {}
        Some(other) => return Ok(Resumed::Refused(other)),
        None => return Ok(Resumed::Unknown),
    }
    let orders = steps::lock_orders(&mut work, [OrderId(saga.business_key)]).await?;
    let order = orders.get(&saga.business_key);
    let order = order.ok_or_else(|| StepError::failed("the saga's order is not there"))?;
    let reason = "an operator resumed it".to_owned();
    publish_again(app, &mut work, &mut sagas, &saga, order, Transition::Resume, reason)?;
    sagas.save(&mut work).await?;
    work.commit().await?;
    Ok(Resumed::Driven)
}

/// Cancels an order that timed out and that nobody cancelled.
async fn cancel(
    app: &App,
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    saga: &Overdue,
    order: &mut OrderRow,
) -> Result<(), StepError> {
    let context = saga.context(app.participant.definition);
    let detail = "no end by the deadline";
    steps::cancel_order(work, sagas, &DRIVE_COMPENSATION, &context, order, CancelReason::TimedOut, detail).await
}

/// Publishes the order's cancellation once more, under a new id.
fn publish_again(
    app: &App,
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    saga: &Overdue,
    order: &OrderRow,
    transition: Transition,
    reason: String,
) -> Result<(), StepError> {
    let context = saga.context(app.participant.definition);
    let detail = order.cancel_reason.clone().unwrap_or_default();
    let event = steps::cancelled(order, reason_of(saga), &detail)?;
    let event_id = work.publish(&DRIVE_COMPENSATION, &context, order.version, &event)?;
    sagas.record(
        &context,
        Recorded {
            step: &DRIVE_COMPENSATION,
            status: StepStatus::Completed,
            transition,
            event_type: OrderCancelled::TYPE.wire_name(),
            event_id: Some(event_id),
            reason: Some(reason),
        },
    )
}

/// Why the order was cancelled in the first place: the step at which the saga turned says it.
fn reason_of(saga: &Overdue) -> CancelReason {
    match saga.failed_at_step.as_deref() {
        Some(step) if step == RESERVE_STOCK.name => CancelReason::OutOfStock,
        Some(step) if step == PROCESS_PAYMENT.name => CancelReason::PaymentRefused,
        Some(step) if step == CANCEL_ORDER_ON_REQUEST.name => CancelReason::CustomerRequest,
        _ => CancelReason::TimedOut,
    }
}

fn give_up(app: &App, sagas: &mut Sagas, saga: &Overdue) -> Result<(), StepError> {
    tracing::error!(saga_id = %saga.saga_id, attempts = saga.attempts, "a compensation is stuck: somebody has to look");
    sagas.record(
        &saga.context(app.participant.definition),
        Recorded {
            step: &DRIVE_COMPENSATION,
            status: StepStatus::Failed,
            transition: Transition::GiveUp,
            event_type: OrderCancelled::TYPE.wire_name(),
            event_id: None,
            reason: Some(format!("no receipts after {} attempts", saga.attempts)),
        },
    )
}
