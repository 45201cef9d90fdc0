//! Why an order is where it is, in plain sentences. What is awaited is read off the saga's table and its journal
//! (`arrows`), what stands in the way off the facts of all three schemas (`obstacles`), and what the clock will do off
//! the saga itself (`clock`). [`FindingKind`] lists every way an order can wait.

mod arrows;
mod clock;
mod finding;
mod obstacles;

use axum::extract::State;
use bootstrap::{Json, Path, Problem};
use contracts::{INVENTORY, ORDER, PAYMENT};
use saga::{SagaDefinition, Service};
use saga_store::query::{self, SagaView, StepView};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use self::{arrows::Arrow, finding::Finding};
use crate::{
    App,
    domain::OrderStatus,
    store::{self, AtGateway, Fact, FaultHit, OrderRow, SagaConsumers},
};

/// Faults beyond these are counted on the saga's page, not told one by one.
const FAULTS_TOLD: i64 = 20;
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
    /// What stands in the way, the nearest first; then what was refused, came too late, or was injected.
    findings: Vec<Finding>,
    links: Vec<String>,
}

/// A step that is awaited.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Awaited {
    step: &'static str,
    service: String,
    /// The event that sets the step in motion.
    #[schema(required = true)]
    on: Option<&'static str>,
    /// That event's id.
    #[schema(required = true)]
    event_id: Option<Uuid>,
}

/// Everything that is known of an order at one moment.
struct Known {
    order: OrderRow,
    saga: SagaView,
    journal: Vec<StepView>,
    facts: Vec<Fact>,
    at_gateway: Option<AtGateway>,
    fault_hits: Vec<FaultHit>,
    now: OffsetDateTime,
    broker_is_there: bool,
    definition: &'static SagaDefinition,
    /// How often each step is tried in this deployment.
    attempts: Vec<(&'static str, u32)>,
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
    match read(&app, id).await? {
        Read::Known(known) => Ok(Json(explain(&known))),
        Read::WithoutSaga(order) => Ok(Json(without_saga(&order))),
    }
}

/// What there was to read.
enum Read {
    Known(Box<Known>),
    WithoutSaga(Box<OrderRow>),
}

/// Reads until nothing has happened meanwhile, so that all is of one moment; but not for ever.
async fn read(app: &App, order_id: Uuid) -> Result<Read, Problem> {
    let pool = &app.participant.pools.http;
    let mut reads = 0;
    loop {
        let order = store::get_order(&mut *pool.acquire().await?, order_id).await?;
        let order = order.ok_or_else(|| Problem::not_found(format!("There is no order {order_id}.")))?;
        let Some(saga) = query::get(pool, order.saga_id.0).await? else {
            return Ok(Read::WithoutSaga(Box::new(order)));
        };
        let known = read_around(app, order, saga).await?;
        let later = query::get(pool, known.saga.saga_id).await?;
        reads += 1;
        if reads == READS || later.is_some_and(|later| later.last_progress_at == known.saga.last_progress_at) {
            return Ok(Read::Known(Box::new(known)));
        }
    }
}

async fn read_around(app: &App, order: OrderRow, saga: SagaView) -> Result<Known, Problem> {
    let (pool, definition) = (&app.participant.pools.http, app.participant.definition);
    let consumers = SagaConsumers {
        order: consumers(definition, ORDER),
        inventory: consumers(definition, INVENTORY),
        payment: consumers(definition, PAYMENT),
    };
    let (journal, now) = (query::journal(pool, saga.saga_id).await?, store::now(pool).await?);
    let mut conn = pool.acquire().await?;
    Ok(Known {
        facts: store::obstacles(&mut conn, saga.saga_id, &consumers).await?,
        at_gateway: store::at_gateway(&mut conn, order.order_id.0).await?,
        fault_hits: store::fault_hits(&mut conn, saga.saga_id, FAULTS_TOLD).await?,
        broker_is_there: app.participant.bus.is_connected(),
        attempts: definition.steps.iter().map(|s| (s.name, app.participant.policy(s).retry.attempts)).collect(),
        order,
        saga,
        journal,
        now,
        definition,
    })
}

fn consumers(definition: &SagaDefinition, service: Service) -> Vec<String> {
    let steps = definition.steps.iter().filter(|step| step.service == Some(service) && step.consumes().is_some());
    steps.map(|step| step.consumer()).collect()
}

fn explain(known: &Known) -> Explanation {
    let Known { order, saga, .. } = known;
    let awaited = arrows::awaited(known.definition, saga, &known.journal);
    let findings = findings(known, &awaited);
    let (deadline, at_deadline) = clock::deadline(known.definition, saga);
    Explanation {
        order_id: order.order_id.0,
        order_status: order.status,
        saga_status: Some(saga.status.clone()),
        summary: clock::summary(known, &awaited, &findings),
        waiting_for: awaited.iter().map(Awaited::from).collect(),
        since: at_deadline.is_some().then_some(saga.last_progress_at),
        deadline,
        at_deadline,
        findings,
        links: links(order),
    }
}

fn findings(known: &Known, awaited: &[Arrow<'_>]) -> Vec<Finding> {
    let (obstacles, clock) = (obstacles::of_awaited(known, awaited), clock::findings(known));
    // Of a stuck saga nothing matters more than that somebody has to act.
    let (first, second) = if known.saga.status == "FAILED" { (clock, obstacles) } else { (obstacles, clock) };
    let others = obstacles::of_others(known, awaited);
    first.into_iter().chain(second).chain(others).chain(finding::history(known)).collect()
}

impl From<&Arrow<'_>> for Awaited {
    fn from(arrow: &Arrow<'_>) -> Self {
        Awaited {
            step: arrow.step.name,
            service: arrow.service.to_string(),
            on: arrow.step.consumes().map(|event| event.name),
            event_id: Some(arrow.event_id),
        }
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
        links: vec![format!("/api/orders/{}", order.order_id)],
    }
}

fn links(order: &OrderRow) -> Vec<String> {
    vec![
        format!("/api/orders/{}", order.order_id),
        format!("/api/sagas/{}", order.saga_id),
        format!("/api/admin/dlq?saga_id={}", order.saga_id),
        "/api/admin/outbox".to_owned(),
        "/api/admin/relay".to_owned(),
        "/api/admin/consumers".to_owned(),
    ]
}
