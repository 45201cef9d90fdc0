//! The second deadline: a timed-out order that nobody cancelled is cancelled here; a compensation whose
//! receipts are overdue is driven again, and given up after the last attempt, until an operator resumes it or the receipts
//! come after all. The participants answer again without acting twice. Nothing is driven, and no attempt counted, while the
//! cancellation before is still on its way.

use std::collections::{HashMap, HashSet};

use contracts::{
    ORDER, OrderId,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CancelReason, DRIVE_COMPENSATION, OrderCancelled, PROCESS_PAYMENT, RESERVE_STOCK,
    },
};
use messaging::{
    StepError, UnitOfWork,
    acknowledged::StreamView,
    housekeeping::every,
    outbox::{self, Whereabouts},
    retry_contended,
};
use saga::{Event, SagaDefinition, Status, StepStatus, Transition};
use saga_store::{
    Recorded, Sagas,
    compensation::{self, Overdue},
};
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
        while !stop.is_cancelled() {
            match retry_contended(|| drive_overdue_compensations(&app)).await {
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
pub async fn drive_overdue_compensations(app: &App) -> Result<usize, StepError> {
    let definition = app.participant.definition;
    // Before the transaction, which must not wait for the broker.
    let stream = app.participant.bus.own_stream().await;
    let mut work = app.participant.outbox.begin().await?;
    let overdue = compensation::overdue(work.conn(), definition, BATCH).await?;
    if overdue.is_empty() {
        return Ok(0);
    }
    let under_way = under_way(&mut work, definition, &overdue, stream.as_ref()).await?;
    let ids = overdue.iter().map(|o| o.saga_id);
    let mut sagas = saga_store::lock(work.conn(), definition, ORDER, ids).await?;
    let mut orders = steps::lock_orders(&mut work, overdue.iter().map(|o| OrderId(o.business_key))).await?;
    let mut later = Vec::new();
    for saga in &overdue {
        let (status, waits) = (sagas.status(Some(saga.saga_id)), under_way.contains(&saga.saga_id));
        let what = domain::drive(status, waits, saga.attempts.unsigned_abs(), definition.compensation.max_attempts);
        let driven = match (what, orders.get_mut(&saga.business_key)) {
            (Drive::Wait, _) => {
                later.push(saga.saga_id);
                continue;
            }
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
            later.push(saga.saga_id);
        } else {
            driven?;
        }
    }
    let wait = definition.compensation.deadline.max(app.config.compensation_check_every);
    compensation::postpone(work.conn(), &later, wait).await?;
    sagas.save(&mut work).await?;
    work.commit().await?;
    Ok(overdue.len())
}

/// The sagas whose last cancellation has not come to everybody who owes a receipt: it waits in the outbox, or in the stream
/// for a consumer. While the broker is away, whatever it was given is on its way.
async fn under_way(
    work: &mut UnitOfWork,
    definition: &SagaDefinition,
    overdue: &[Overdue],
    stream: Option<&StreamView>,
) -> Result<HashSet<Uuid>, StepError> {
    let ids: Vec<Uuid> = overdue.iter().map(|saga| saga.saga_id).collect();
    let told = compensation::last_told(work.conn(), OrderCancelled::TYPE, &ids).await?;
    let places = outbox::whereabouts(work.conn(), &told.values().copied().collect::<Vec<_>>()).await?;
    let consumers: HashMap<&str, String> = definition
        .steps
        .iter()
        .filter(|step| step.consumes() == Some(OrderCancelled::TYPE))
        .filter_map(|step| Some((step.service?.0, step.consumer())))
        .collect();
    let is_under_way = |saga: &&Overdue| match told.get(&saga.saga_id).and_then(|event_id| places.get(event_id)) {
        None => false,
        Some(Whereabouts::Waiting) => true,
        Some(Whereabouts::Published { stream_epoch, sequence }) => stream.is_none_or(|stream| {
            let due = saga.receipts_due.iter().filter_map(|service| consumers.get(service.as_str()));
            due.into_iter().any(|consumer| stream.owes(consumer, *stream_epoch, *sequence))
        }),
    };
    Ok(overdue.iter().filter(is_under_way).map(|saga| saga.saga_id).collect())
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
    let definition = app.participant.definition;
    let mut work = app.participant.http_outbox.begin().await?;
    let named = compensation::named(work.conn(), saga_ids).await?;
    let mut sagas = saga_store::lock(work.conn(), definition, ORDER, named.iter().map(|saga| saga.saga_id)).await?;
    let orders = steps::lock_orders(&mut work, named.iter().map(|saga| OrderId(saga.business_key))).await?;
    let mut outcomes = HashMap::with_capacity(named.len());
    for saga in &named {
        let outcome = match sagas.status(Some(saga.saga_id)) {
            Some(status) if domain::may_resume(status) => {
                let order = orders.get(&saga.business_key);
                let order = order.ok_or_else(|| StepError::failed("the saga's order is not there"))?;
                publish_again(app, &mut work, &mut sagas, saga, order, Transition::Resume, why.to_owned())?;
                Resumed::Driven
            }
            Some(other) => Resumed::Refused(other),
            None => Resumed::Unknown,
        };
        outcomes.insert(saga.saga_id, outcome);
    }
    sagas.save(&mut work).await?;
    work.commit().await?;
    Ok(outcomes)
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
