//! Explains the state of an order: the steps that it waits for, from the saga's table and its journal; the obstacles to
//! their events, from the facts of all three schemas ([`obstacles`]); and its deadline. Its history is the saga's journal.

mod obstacles;

use axum::extract::State;
use bootstrap::{Json, JsonResult, Path, Problem};
use contracts::{INVENTORY, ORDER, PAYMENT};
use orchestrator::{Next, Orchestration};
use saga::{SagaDefinition, SagaState, Status, Step};
use saga_store::query::{self, SagaView, StepView};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use self::obstacles::Obstacle;
use crate::{
    App,
    domain::OrderStatus,
    store::{self, AtGateway, Fact, OrderRow},
};

/// How often the facts are read at most, until the saga did not change during a read.
const MAX_READS: u32 = 3;

/// The state of an order and what it waits for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Explanation {
    order_id: Uuid,
    order_status: OrderStatus,
    /// Null when the saga is purged.
    #[schema(required = true)]
    saga_status: Option<String>,
    /// The state, the awaited steps and the first obstacle, in two or three sentences.
    summary: String,
    /// The awaited steps; empty when there are none.
    waiting_for: Vec<Awaited>,
    /// The time of the last progress; null when the saga has ended.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    since: Option<OffsetDateTime>,
    /// The next deadline; null when there is none.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    deadline: Option<OffsetDateTime>,
    /// What happens at the deadline.
    #[schema(required = true)]
    at_deadline: Option<String>,
    /// The obstacles, in the order of the event's way.
    findings: Vec<Obstacle>,
}

/// An awaited step. It can be delayed anywhere between the commit of its event and its own commit: in the outbox, by the relay,
/// in the stream, by the consumer, or in the step.
#[derive(Debug, Serialize, ToSchema)]
struct Awaited {
    step: &'static str,
    service: &'static str,
    /// The event that triggers the step.
    on: &'static str,
    /// That event's id.
    event_id: Uuid,
    /// The service that publishes the event.
    #[serde(skip)]
    publisher: String,
    #[serde(skip)]
    consumer: String,
}

/// The facts about an order at one moment.
struct Known {
    order: OrderRow,
    saga: SagaView,
    status: Status,
    journal: Vec<StepView>,
    facts: Vec<Fact>,
    at_gateway: Option<AtGateway>,
    broker_is_connected: bool,
}

/// Explain the state of an order
///
/// Reads the state of the order's events in all services from the database, so it also answers while the other services, or
/// the broker, cannot be reached.
#[utoipa::path(get, path = "/api/orders/{id}/explain", tag = "orders",
    params(("id" = Uuid, Path, description = "The order's id")),
    responses((status = 200, description = "The explanation", body = Explanation),
        (status = 404, description = "No such order", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn explain_order(State(app): State<App>, Path(id): Path<Uuid>) -> JsonResult<Explanation> {
    let pool = &app.participant.pools.http;
    let mut reads = 0;
    loop {
        let order = store::get_order(&mut *pool.acquire().await?, id).await?;
        let order = order.ok_or_else(|| Problem::not_found(format!("There is no order {id}.")))?;
        let Some(saga) = query::get(pool, order.saga_id.0).await? else { return Ok(Json(without_saga(&order))) };
        let known = read_around(&app, order, saga).await?;
        let later = query::get(pool, known.saga.saga_id).await?;
        reads += 1;
        // Repeated until the reads are consistent, within the limit.
        if reads == MAX_READS || later.is_some_and(|later| later.last_progress_at == known.saga.last_progress_at) {
            let twin = app.twin.definition();
            let is_twin = known.saga.saga_type == twin.saga_type;
            return Ok(Json(explain(if is_twin { twin } else { app.participant.definition }, &known)));
        }
    }
}

async fn read_around(app: &App, order: OrderRow, saga: SagaView) -> Result<Known, Problem> {
    let pool = &app.participant.pools.http;
    let consumers = [ORDER, INVENTORY, PAYMENT].map(|service| -> Vec<String> {
        let steps = app.participant.definition.steps.iter();
        let consuming = steps.filter(|step| step.service == Some(service) && step.consumes().is_some());
        consuming.map(|step| step.consumer()).collect()
    });
    let journal = query::journal(pool, saga.saga_id).await?;
    let mut conn = pool.acquire().await?;
    Ok(Known {
        facts: store::obstacles(&mut conn, saga.saga_id, &consumers).await?,
        at_gateway: store::at_gateway(&mut conn, order.order_id.0).await?,
        broker_is_connected: app.participant.bus.is_connected(),
        status: saga.status.parse().map_err(|e| Problem::internal(&e))?,
        order,
        saga,
        journal,
    })
}

fn explain(definition: &'static SagaDefinition, known: &Known) -> Explanation {
    let Known { order, saga, status, journal, .. } = known;
    let awaited = awaited(definition, *status, &saga.receipts_due, journal);
    let findings = obstacles::obstacles_of(known, &awaited);
    let (deadline, at_deadline) = deadline(definition, *status, saga);
    Explanation {
        summary: summary(known, commanded(definition, known), &awaited, &findings),
        order_id: order.order_id.0,
        order_status: order.status,
        saga_status: Some(saga.status.clone()),
        since: at_deadline.is_some().then_some(saga.last_progress_at),
        waiting_for: awaited,
        deadline,
        at_deadline,
        findings,
    }
}

fn without_saga(order: &OrderRow) -> Explanation {
    Explanation {
        order_id: order.order_id.0,
        order_status: order.status,
        saga_status: None,
        summary: "The order has ended, and its saga is purged.".to_owned(),
        waiting_for: Vec::new(),
        since: None,
        deadline: None,
        at_deadline: None,
        findings: Vec::new(),
    }
}

/// The awaited steps: the readers of the last event that has any; of a cancellation only those whose receipt is due.
/// Of a completed saga only the steps that it owes after its pivot.
fn awaited(
    definition: &'static SagaDefinition,
    status: Status,
    receipts_due: &[String],
    journal: &[StepView],
) -> Vec<Awaited> {
    let readers = |entry: &StepView| -> Vec<Awaited> {
        let Some(event_id) = entry.event_id else { return Vec::new() };
        let reader = |step: &'static Step| {
            let (event, service) = (step.consumes()?, step.service?);
            // In any version: a replica of another build may have published it.
            (entry.event_type.split('.').next() == Some(event.name)).then(|| Awaited {
                step: step.name,
                service: service.0,
                on: event.name,
                event_id,
                publisher: entry.service.clone(),
                consumer: step.consumer(),
            })
        };
        definition.steps.iter().filter_map(|step| reader(step)).collect()
    };
    let mut next = journal.iter().rev().map(readers).find(|steps| !steps.is_empty()).unwrap_or_default();
    let is_due = |a: &Awaited| receipts_due.iter().any(|due| due == a.service);
    match status {
        Status::Started | Status::InProgress | Status::TimedOut => {}
        Status::Compensating | Status::Failed => next.retain(is_due),
        Status::Completed => {
            let owed = definition.after_pivot();
            next = journal.iter().flat_map(readers).filter(is_due).collect();
            next.retain(|a| owed.iter().any(|step| step.name == a.step));
        }
        Status::Compensated => next.clear(),
    }
    next
}

/// The step that the coordinator of an orchestrated saga commands.
fn commanded(definition: &'static SagaDefinition, known: &Known) -> Option<&'static Step> {
    let state = SagaState {
        status: known.status,
        current_step: u8::try_from(known.saga.current_step).unwrap_or(u8::MAX),
        past_pivot: false,
        receipts_due: known.saga.receipts_due.clone(),
    };
    match Orchestration::of(definition)?.next(&state, false) {
        Next::Command(step) => Some(step),
        Next::TimeOut | Next::Retry | Next::Rest => None,
    }
}

/// The state of the order, the commanded or awaited steps, and the first obstacle.
fn summary(known: &Known, commanded: Option<&Step>, awaited: &[Awaited], findings: &[Obstacle]) -> String {
    let Known { order, saga, .. } = known;
    let cancelled = order.cancellation.as_ref().map_or("no reason given", |c| c.detail.as_str());
    let place = match known.status {
        Status::Started => "The order is accepted; its stock is not reserved yet.".to_owned(),
        Status::InProgress => format!("The order has done step {} of {}.", saga.current_step, saga.total_steps - 1),
        Status::Completed => "The order is confirmed: stock is reserved, the card is charged.".to_owned(),
        Status::TimedOut => "The order timed out and is about to be cancelled.".to_owned(),
        Status::Compensating => {
            let due = saga.receipts_due.join(" and ");
            format!("The order is cancelled ({cancelled}); {due} must confirm that their steps are undone.")
        }
        Status::Compensated => format!("The order is cancelled ({cancelled}), and all steps are undone."),
        Status::Failed => format!(
            "The order is cancelled ({cancelled}), but its compensation has FAILED: an operator has to resume it."
        ),
    };
    if let Some(step) = commanded {
        let by = step.service.map_or("any service", |service| service.0);
        return format!("{place} The coordinator commands {} of {by}.", step.name);
    }
    if known.status == Status::Failed || awaited.is_empty() {
        return place;
    }
    let steps: Vec<String> = awaited.iter().map(|a| format!("{} of {}", a.step, a.service)).collect();
    let first = findings.first().map(|finding| format!(" {}", finding.what)).unwrap_or_default();
    format!("{place} It waits for {}.{first}", steps.join(" and "))
}

/// The next deadline, and what happens then; waiting for an operator has no deadline.
fn deadline(definition: &SagaDefinition, status: Status, saga: &SagaView) -> (Option<OffsetDateTime>, Option<String>) {
    let (done, most) = (saga.compensation_attempts.unsigned_abs(), definition.compensation.max_attempts);
    let (time, then) = match status {
        Status::Started | Status::InProgress => {
            (Some(saga.deadline), "The saga times out, and the order is cancelled.".to_owned())
        }
        Status::TimedOut => (saga.compensation_deadline, "Order cancels it without the timeout's event.".to_owned()),
        Status::Compensating if done >= most => {
            (saga.compensation_deadline, "The saga is FAILED, and an operator has to resume it.".to_owned())
        }
        Status::Compensating if definition.is_orchestrated() => {
            (saga.compensation_deadline, format!("The next attempt to undo begins: {} of {most}.", done + 1))
        }
        Status::Compensating => (
            saga.compensation_deadline,
            format!(
                "Unless it is not delivered yet, the cancellation is published again: {} of {most} times.",
                done + 1
            ),
        ),
        Status::Failed => {
            let request = format!("POST /api/admin/sagas/{}/resume", saga.saga_id);
            (None, format!("The missing receipts would end it; {request} retries the compensation."))
        }
        Status::Completed | Status::Compensated => return (None, None),
    };
    (time, Some(then))
}

#[cfg(test)]
mod tests {
    use contracts::order_fulfillment::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentFailed, SAGA, StockReserved,
    };
    use saga::{Event, Kind, Service, StepOn};

    use super::*;

    fn entry<E: Event>(service: Service, event_id: Option<Uuid>) -> StepView {
        StepView {
            position: 1,
            step_number: 0,
            step: "any".to_owned(),
            service: service.0.to_owned(),
            direction: "FORWARD".to_owned(),
            event_type: E::TYPE.wire_name(),
            event_id,
            status: "COMPLETED".to_owned(),
            occurred_at: OffsetDateTime::UNIX_EPOCH,
            reason: None,
            fault: None,
        }
    }

    fn names(status: Status, due: &[&str], journal: &[StepView]) -> Vec<(&'static str, String)> {
        let due: Vec<String> = due.iter().map(|service| (*service).to_owned()).collect();
        awaited(&SAGA, status, &due, journal).into_iter().map(|a| (a.step, a.publisher)).collect()
    }

    #[test]
    fn the_readers_of_the_last_event_are_awaited() {
        let mut journal = vec![entry::<OrderCreated>(ORDER, Some(Uuid::nil()))];
        assert_eq!(names(Status::Started, &[], &journal), [("reserve_stock", "order".to_owned())]);
        journal.push(entry::<StockReserved>(INVENTORY, Some(Uuid::nil())));
        journal.push(entry::<OrderConfirmed>(ORDER, Some(Uuid::nil())));
        assert_eq!(names(Status::InProgress, &[], &journal), [("process_payment", "inventory".to_owned())]);
        // A skipped step has published nothing.
        journal.push(entry::<PaymentFailed>(PAYMENT, None));
        assert_eq!(names(Status::InProgress, &[], &journal), [("process_payment", "inventory".to_owned())]);
        journal.push(entry::<PaymentFailed>(PAYMENT, Some(Uuid::nil())));
        assert_eq!(names(Status::InProgress, &[], &journal), [("cancel_unpaid_order", "payment".to_owned())]);
        assert_eq!(names(Status::Completed, &[], &journal), []);
    }

    #[test]
    fn owed_steps_of_a_completed_saga_are_awaited() {
        static SHIP: StepOn<OrderConfirmed> =
            StepOn::new(4, "ship_order", Service("shipping"), &[OrderCreated::TYPE], Kind::Retriable);
        let steps: Vec<&'static Step> = SAGA.steps.iter().copied().chain([&SHIP.step]).collect();
        let shipped: &'static SagaDefinition = Box::leak(Box::new(SagaDefinition { steps: steps.leak(), ..SAGA }));
        let journal =
            [entry::<OrderCreated>(ORDER, Some(Uuid::nil())), entry::<OrderConfirmed>(ORDER, Some(Uuid::nil()))];
        let steps = |due: &[String]| -> Vec<&str> {
            awaited(shipped, Status::Completed, due, &journal).into_iter().map(|a| a.step).collect()
        };
        assert_eq!(steps(&["shipping".to_owned()]), ["ship_order"]);
        assert!(steps(&[]).is_empty());
    }

    #[test]
    fn of_a_cancellation_only_missing_receipts_are_awaited() {
        let journal = [entry::<OrderCancelled>(ORDER, Some(Uuid::nil()))];
        let both = names(Status::Compensating, &["inventory", "payment"], &journal);
        assert_eq!(both.iter().map(|(step, _)| *step).collect::<Vec<_>>(), ["release_stock", "refund_payment"]);
        assert_eq!(names(Status::Failed, &["payment"], &journal), [("refund_payment", "order".to_owned())]);
        assert_eq!(names(Status::Compensated, &[], &journal), []);
    }
}
