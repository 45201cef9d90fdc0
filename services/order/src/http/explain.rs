//! Why an order is where it is: the steps that it waits for, read off the saga's table and its journal; what is in the way
//! of their events, off the facts of all three schemas ([`obstacles`]); and its deadline. What has happened to it before
//! stands in the saga's journal.

mod obstacles;

use axum::extract::State;
use bootstrap::{Json, Path, Problem};
use contracts::{INVENTORY, ORDER, PAYMENT};
use saga::{SagaDefinition, Service, Status, Step};
use saga_store::query::{self, SagaView, StepView};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use self::obstacles::Finding;
use crate::{
    App,
    domain::OrderStatus,
    store::{self, AtGateway, Fact, OrderRow, SagaConsumers},
};

/// How often everything is read at most, until nothing has happened meanwhile.
const READS: u32 = 3;

/// Where an order is and what it waits for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Explanation {
    order_id: Uuid,
    order_status: OrderStatus,
    /// Null when the saga is not kept any more.
    #[schema(required = true)]
    saga_status: Option<String>,
    /// Where it is, what it waits for and what holds that up, in two or three sentences.
    summary: String,
    /// What has to happen next; empty when nothing has to.
    waiting_for: Vec<Awaited>,
    /// Since when nothing has happened; null when nothing has to.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    since: Option<OffsetDateTime>,
    /// When the suite loses patience; null when it does not wait.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    deadline: Option<OffsetDateTime>,
    /// What happens then.
    #[schema(required = true)]
    at_deadline: Option<String>,
    /// What stands in the way, the nearest first.
    findings: Vec<Finding>,
}

/// A step that is awaited: an arrow of the saga's table. It can be held up anywhere between the commit of its event and its
/// own: in the outbox, by the relay, in the stream, by the consumer, or in the step.
#[derive(Debug, Serialize, ToSchema)]
struct Awaited {
    step: &'static str,
    service: &'static str,
    /// The event that sets the step in motion.
    on: &'static str,
    /// That event's id.
    event_id: Uuid,
    /// Who has committed the event, and publishes it.
    #[serde(skip)]
    publisher: String,
    #[serde(skip)]
    consumer: String,
}

/// Everything that is known of an order at one moment.
struct Known {
    order: OrderRow,
    saga: SagaView,
    status: Status,
    journal: Vec<StepView>,
    facts: Vec<Fact>,
    at_gateway: Option<AtGateway>,
    broker_is_there: bool,
}

/// Why an order is where it is
///
/// Reads what the database knows of the order's events in all services, so it answers also while the others, or the
/// broker, are away.
#[utoipa::path(get, path = "/api/orders/{id}/explain", tag = "orders",
    params(("id" = Uuid, Path, description = "The order's id")),
    responses((status = 200, description = "The explanation", body = Explanation),
        (status = 404, description = "No such order", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn explain_order(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<Explanation>, Problem> {
    let pool = &app.participant.pools.http;
    let mut reads = 0;
    loop {
        let order = store::get_order(&mut *pool.acquire().await?, id).await?;
        let order = order.ok_or_else(|| Problem::not_found(format!("There is no order {id}.")))?;
        let Some(saga) = query::get(pool, order.saga_id.0).await? else { return Ok(Json(without_saga(&order))) };
        let known = read_around(&app, order, saga).await?;
        let later = query::get(pool, known.saga.saga_id).await?;
        reads += 1;
        // So that all is of one moment; but not for ever.
        if reads == READS || later.is_some_and(|later| later.last_progress_at == known.saga.last_progress_at) {
            return Ok(Json(explain(app.participant.definition, &known)));
        }
    }
}

async fn read_around(app: &App, order: OrderRow, saga: SagaView) -> Result<Known, Problem> {
    let pool = &app.participant.pools.http;
    let consumers = |service: Service| {
        let steps = app.participant.definition.steps.iter();
        let consuming = steps.filter(|step| step.service == Some(service) && step.consumes().is_some());
        consuming.map(|step| step.consumer()).collect()
    };
    let consumers =
        SagaConsumers { order: consumers(ORDER), inventory: consumers(INVENTORY), payment: consumers(PAYMENT) };
    let journal = query::journal(pool, saga.saga_id).await?;
    let mut conn = pool.acquire().await?;
    Ok(Known {
        facts: store::obstacles(&mut conn, saga.saga_id, &consumers).await?,
        at_gateway: store::at_gateway(&mut conn, order.order_id.0).await?,
        broker_is_there: app.participant.bus.is_connected(),
        status: saga.status.parse().map_err(|e| Problem::internal(&e))?,
        order,
        saga,
        journal,
    })
}

fn explain(definition: &'static SagaDefinition, known: &Known) -> Explanation {
    let Known { order, saga, status, journal, .. } = known;
    let awaited = awaited(definition, *status, &saga.receipts_due, journal);
    let findings = obstacles::in_the_way(known, &awaited);
    let (deadline, at_deadline) = deadline(definition, *status, saga);
    Explanation {
        summary: summary(known, &awaited, &findings),
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
        summary: "The order ended so long ago that its saga is not kept any more.".to_owned(),
        waiting_for: Vec::new(),
        since: None,
        deadline: None,
        at_deadline: None,
        findings: Vec::new(),
    }
}

/// What has to happen next: the readers of the last event that has any; of a cancellation only those whose receipt is due.
/// Nothing, when the saga has ended.
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
            // In whichever version: a replica of another build may have published it.
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
    match status {
        Status::Started | Status::InProgress | Status::TimedOut => {}
        Status::Compensating | Status::Failed => next.retain(|a| receipts_due.iter().any(|due| due == a.service)),
        Status::Completed | Status::Compensated => next.clear(),
    }
    next
}

/// Where the order is, which steps it waits for, and the first thing that holds it up.
fn summary(known: &Known, awaited: &[Awaited], findings: &[Finding]) -> String {
    let Known { order, saga, .. } = known;
    let cancelled = order.cancellation.as_ref().map_or("no reason given", |c| c.detail.as_str());
    let place = match known.status {
        Status::Started => "The order is accepted; its stock is not reserved yet.".to_owned(),
        Status::InProgress => format!("The order has done step {} of {}.", saga.current_step, saga.total_steps - 1),
        Status::Completed => "The order is confirmed: stock is reserved, the card is charged.".to_owned(),
        Status::TimedOut => "The order took too long and is about to be cancelled.".to_owned(),
        Status::Compensating => {
            let due = saga.receipts_due.join(" and ");
            format!("The order is cancelled ({cancelled}); {due} must confirm that all is undone.")
        }
        Status::Compensated => format!("The order is cancelled ({cancelled}), and everything is undone."),
        Status::Failed => format!(
            "The order is cancelled ({cancelled}), but its compensation is stuck: an operator has to resume it."
        ),
    };
    if known.status == Status::Failed || awaited.is_empty() {
        return place;
    }
    let steps: Vec<String> = awaited.iter().map(|a| format!("{} of {}", a.step, a.service)).collect();
    let first = findings.first().map(|finding| format!(" {}", finding.what)).unwrap_or_default();
    format!("{place} It waits for {}.{first}", steps.join(" and "))
}

/// When the suite loses patience, and what happens then; an operator's turn has no time.
fn deadline(definition: &SagaDefinition, status: Status, saga: &SagaView) -> (Option<OffsetDateTime>, Option<String>) {
    let (done, most) = (saga.compensation_attempts.unsigned_abs(), definition.compensation.max_attempts);
    let (time, then) = match status {
        Status::Started | Status::InProgress => {
            (Some(saga.deadline), "The saga times out, and the order is cancelled.".to_owned())
        }
        Status::TimedOut => (saga.compensation_deadline, "Order cancels it without waiting for the event.".to_owned()),
        Status::Compensating if done >= most => {
            (saga.compensation_deadline, "The saga is FAILED, and an operator has to resume it.".to_owned())
        }
        Status::Compensating => (
            saga.compensation_deadline,
            format!(
                "Unless it is still on its way, the cancellation is published again: {} of {most} times.",
                done + 1
            ),
        ),
        Status::Failed => {
            let request = format!("POST /api/admin/sagas/{}/resume", saga.saga_id);
            (None, format!("The missing receipts would end it; {request} drives it on."))
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
    use saga::Event;

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
    fn the_readers_of_the_last_event_that_has_any_are_awaited() {
        let mut journal = vec![entry::<OrderCreated>(ORDER, Some(Uuid::nil()))];
        assert_eq!(names(Status::Started, &[], &journal), [("reserve_stock", "order".to_owned())]);
        journal.push(entry::<StockReserved>(INVENTORY, Some(Uuid::nil())));
        journal.push(entry::<OrderConfirmed>(ORDER, Some(Uuid::nil())));
        assert_eq!(names(Status::InProgress, &[], &journal), [("process_payment", "inventory".to_owned())]);
        // A step that was skipped has published nothing to wait for.
        journal.push(entry::<PaymentFailed>(PAYMENT, None));
        assert_eq!(names(Status::InProgress, &[], &journal), [("process_payment", "inventory".to_owned())]);
        journal.push(entry::<PaymentFailed>(PAYMENT, Some(Uuid::nil())));
        assert_eq!(names(Status::InProgress, &[], &journal), [("cancel_unpaid_order", "payment".to_owned())]);
        assert_eq!(names(Status::Completed, &[], &journal), []);
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
