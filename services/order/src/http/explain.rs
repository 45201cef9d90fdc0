//! Why an order is where it is, in plain sentences.

use axum::extract::State;
use bootstrap::{Json, Path, Problem};
use contracts::order_fulfillment::SAGA;
use messaging::{dead_letter, outbox};
use saga::{Kind, Step};
use saga_store::query::{self, SagaView, StepView};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    App,
    store::{self, OrderRow},
};

/// Where an order is and what it waits for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Explanation {
    order_id: Uuid,
    order_status: String,
    /// Null when the saga is not kept any more.
    #[schema(required = true)]
    saga_status: Option<String>,
    /// In one sentence.
    summary: String,
    /// What has to happen next; empty when nothing has to.
    waiting_for: Vec<Awaited>,
    /// Since when nothing has happened.
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
    /// What is refused, parked, dead-lettered or came too late.
    findings: Vec<String>,
    links: Vec<String>,
}

/// A step that is awaited.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Awaited {
    step: &'static str,
    service: String,
    /// The event that sets the step in motion; null for steps that none does.
    #[schema(required = true)]
    on: Option<&'static str>,
}

/// Why an order is where it is
#[utoipa::path(get, path = "/api/orders/{id}/explain", tag = "orders",
    params(("id" = Uuid, Path, description = "The order's id")),
    responses((status = 200, description = "The explanation", body = Explanation),
        (status = 404, description = "No such order", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn explain_order(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<Explanation>, Problem> {
    let pool = &app.participant.pools.http;
    let order = store::get_order(&mut *pool.acquire().await?, id).await?;
    let order = order.ok_or_else(|| Problem::not_found(format!("There is no order {id}.")))?;
    let Some(saga) = query::get(pool, order.saga_id).await? else { return Ok(Json(without_saga(&order))) };
    let journal = query::journal(pool, order.saga_id).await?;
    let mut findings = refusals(&journal);
    findings.extend(unpublished(&app, &journal).await?);
    findings.extend(dead_letters(&app, saga.saga_id).await?);
    let (deadline, at_deadline) = deadline_of(&saga);
    Ok(Json(Explanation {
        order_id: order.order_id,
        summary: summary(&order, &saga),
        waiting_for: awaited(&saga).into_iter().map(body).collect(),
        since: at_deadline.is_some().then_some(saga.last_progress_at),
        deadline,
        at_deadline: at_deadline.map(str::to_owned),
        findings,
        links: links(&order, &saga),
        order_status: order.status,
        saga_status: Some(saga.status),
    }))
}

fn without_saga(order: &OrderRow) -> Explanation {
    Explanation {
        order_id: order.order_id,
        order_status: order.status.clone(),
        saga_status: None,
        summary: "The order ended so long ago that its saga is not kept any more.".to_owned(),
        waiting_for: Vec::new(),
        since: None,
        deadline: None,
        at_deadline: None,
        findings: Vec::new(),
        links: vec![format!("/api/orders/{}", order.order_id)],
    }
}

fn summary(order: &OrderRow, saga: &SagaView) -> String {
    let cancelled = order.cancel_reason.as_deref().unwrap_or("no reason given");
    match saga.status.as_str() {
        "STARTED" => "The order is accepted; its stock is not reserved yet.".to_owned(),
        "IN_PROGRESS" => format!("The order has done step {} of {}.", saga.current_step, SAGA.total_steps() - 1),
        "COMPLETED" => "The order is confirmed: stock is reserved, the card is charged.".to_owned(),
        "TIMED_OUT" => "The order took too long and is about to be cancelled.".to_owned(),
        "COMPENSATING" => format!(
            "The order is cancelled ({cancelled}); {} must confirm that all is undone.",
            saga.receipts_due.join(" and ")
        ),
        "COMPENSATED" => format!("The order is cancelled ({cancelled}), and everything is undone."),
        _ => format!(
            "The order is cancelled ({cancelled}), but its compensation is stuck: an operator has to resume it."
        ),
    }
}

/// The steps that must come next, read off the saga's table.
fn awaited(saga: &SagaView) -> Vec<&'static Step> {
    let forward = |s: &&&Step| matches!(s.kind, Kind::Compensatable { .. } | Kind::Pivot);
    let next = saga.current_step.unsigned_abs() + 1;
    SAGA.steps
        .iter()
        .filter(|step| match saga.status.as_str() {
            "STARTED" | "IN_PROGRESS" => forward(step) && u16::from(step.number) == next,
            "TIMED_OUT" => step.name == "cancel_timed_out_order",
            "COMPENSATING" | "FAILED" => {
                step.is_compensation() && step.service.is_some_and(|s| saga.receipts_due.iter().any(|due| due == s.0))
            }
            _ => false,
        })
        .copied()
        .collect()
}

fn body(step: &'static Step) -> Awaited {
    let service = step.service.map_or_else(|| "any".to_owned(), |s| s.to_string());
    Awaited { step: step.name, service, on: step.consumes().map(|event| event.name) }
}

fn deadline_of(saga: &SagaView) -> (Option<OffsetDateTime>, Option<&'static str>) {
    match saga.status.as_str() {
        "STARTED" | "IN_PROGRESS" => (Some(saga.deadline), Some("The saga times out, and the order is cancelled.")),
        "TIMED_OUT" => (Some(saga.deadline), Some("The deadline has passed; the order is being cancelled.")),
        "COMPENSATING" => (
            saga.compensation_deadline,
            Some("The cancellation is published again; after the last attempt the saga is FAILED."),
        ),
        "FAILED" => (None, Some("Nothing happens by itself; POST /api/admin/sagas/{id}/resume drives it on.")),
        _ => (None, None),
    }
}

fn refusals(journal: &[StepView]) -> Vec<String> {
    let told = |step: &&StepView| matches!(step.status.as_str(), "FAILED" | "SKIPPED");
    let tell = |step: &StepView| {
        let what = if step.status == "FAILED" { "refused" } else { "came too late and changed nothing" };
        let reason = step.reason.as_deref().unwrap_or("no reason given");
        format!("{} ({}) {what}: {reason}.", step.step, step.service)
    };
    journal.iter().filter(told).map(tell).collect()
}

/// Events of order itself that have not left; the other services' outboxes are theirs to show.
async fn unpublished(app: &App, journal: &[StepView]) -> Result<Vec<String>, Problem> {
    let mut findings = Vec::new();
    for step in journal.iter().filter(|s| s.service == app.participant.service.0) {
        let Some(event_id) = step.event_id else { continue };
        match outbox::get(&app.participant.pools.http, event_id).await? {
            Some(entry) if entry.state == "PENDING" => {
                findings.push(format!("{} is committed and waits to be published.", entry.event_type));
            }
            Some(entry) if entry.state == "PARKED" => {
                let error = entry.last_error.unwrap_or_default();
                findings.push(format!("{} is parked after {} attempts: {error}.", entry.event_type, entry.attempts));
            }
            _ => {}
        }
    }
    Ok(findings)
}

/// Dead letters of order itself.
async fn dead_letters(app: &App, saga_id: Uuid) -> Result<Vec<String>, Problem> {
    let filter = dead_letter::Filter { saga_id: Some(saga_id), limit: 20, ..Default::default() };
    let letters = dead_letter::list(&app.participant.pools.http, &filter).await?;
    let tell = |l: dead_letter::DeadLetter| {
        format!("{} is a dead letter of {} ({}, {}): {}.", l.event_type, l.step, l.status, l.reason, l.error_chain)
    };
    Ok(letters.into_iter().map(tell).collect())
}

fn links(order: &OrderRow, saga: &SagaView) -> Vec<String> {
    vec![
        format!("/api/orders/{}", order.order_id),
        format!("/api/sagas/{}", saga.saga_id),
        format!("/api/admin/dlq?saga_id={}", saga.saga_id),
        "/api/admin/consumers".to_owned(),
    ]
}
