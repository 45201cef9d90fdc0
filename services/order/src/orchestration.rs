//! The orchestrated twin of the saga: what its coordinator commands, and what a transition means for the order. The decisions
//! about the order are those of the choreographed saga.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bootstrap::{Secret, Startup};
use contracts::{
    INVENTORY, OrderId,
    orchestrated::{
        self, Answer, CANCEL_ORDER_ON_REQUEST, Charge, DRIVE_COMPENSATION, PROCESS_PAYMENT, RELEASE_STOCK,
        RESERVE_STOCK, ReleaseStock, ReserveStock,
    },
    order_fulfillment::{CancelReason, OrderLine, SAGA},
};
use messaging::{Context, StepError, sample::Reading};
use orchestrator::{Commanded, Coordinated, Coordinator, Effect, Failure, Orchestration, Reply, Settings};
use participant::{Calls, Participant};
use reqwest::{Client, StatusCode, redirect};
use saga::{Status, Step, StepStatus, Transition};
use saga_store::{Request, StepTransaction};
use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    App,
    compensation::ResumeOutcome,
    config::Config,
    domain::{self, CancelRequest, Cancellation, Ending, OrderStatus},
    metrics::Ends,
    store::{self, OrderRow},
};

/// The lease is renewed five times in its length.
const SHORTEST_LEASE: Duration = Duration::from_millis(250);
/// How many commands of a step of inventory are on their way at most: as many as it has connections for them, by default.
const COMMANDS_OF_INVENTORY: usize = 8;
/// The same for payment, whose commands hold no connection while the card processor answers: a replica of payment makes 128 calls
/// to it at once, by default.
const COMMANDS_OF_PAYMENT: usize = 64;
/// The time limit of connecting to a participant.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The coordinator's side of the order service.
pub(crate) struct Business {
    pool: PgPool,
    client: Client,
    calls: Calls,
    inventory_url: Arc<str>,
    payment_url: Arc<str>,
    token: Secret,
    ends: Ends,
}

/// The order of a saga is written with it, and never deleted.
const NO_ORDER: &str = "the saga's order does not exist";

/// What a participant answers that may answer otherwise later.
const REPEATABLE: [StatusCode; 2] = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];

/// The coordinator of this replica.
pub(crate) fn coordinator(
    participant: &Participant,
    startup: &Startup,
    config: &Config,
    ends: Ends,
) -> anyhow::Result<Arc<Coordinator<Business>>> {
    let client = Client::builder().no_proxy().redirect(redirect::Policy::none()).connect_timeout(CONNECT_TIMEOUT);
    let client = client.build()?;
    let business = Business {
        pool: participant.pools.work.clone(),
        calls: participant.commands(client.clone()),
        client,
        inventory_url: config.inventory_url.trim_end_matches('/').into(),
        payment_url: config.payment_url.trim_end_matches('/').into(),
        token: config.base.http.admin_token.clone(),
        ends,
    };
    anyhow::ensure!(
        config.coordinator_lease >= SHORTEST_LEASE,
        "COORDINATOR_LEASE ({:?}) has to be at least {SHORTEST_LEASE:?}",
        config.coordinator_lease
    );
    let definition = config.participant.definition(&orchestrated::SAGA);
    participant.coordinates(definition);
    let orchestration = Orchestration::of(definition);
    let orchestration = orchestration.ok_or_else(|| anyhow::anyhow!("the orchestrated saga lacks a step"))?;
    let resilience = config.participant.resilience.clone();
    let policy = Arc::new(move |step: &Step| resilience.policy(step));
    let settings = Settings { lease: config.coordinator_lease, policy, commands };
    let storage = (participant.outbox.clone(), participant.pools.work.clone());
    let breakers = participant.breakers.clone();
    Ok(startup.metrics.register(|registry| {
        Arc::new(Coordinator::new(business, orchestration, storage, breakers, settings, registry))
    }))
}

fn commands(step: &Step) -> usize {
    if step.service == Some(INVENTORY) { COMMANDS_OF_INVENTORY } else { COMMANDS_OF_PAYMENT }
}

impl Business {
    async fn order(&self, saga: &Commanded) -> Result<OrderRow, StepError> {
        let order = store::get_order(&mut *self.pool.acquire().await?, saga.business_key).await?;
        order.ok_or_else(|| StepError::failed(NO_ORDER))
    }

    async fn reserve_stock(&self, saga: &Commanded) -> Result<ReserveStock, StepError> {
        let (saga_id, order_id) = ids(saga);
        let order = self.order(saga).await?;
        let mut lines = store::lines_of(&mut *self.pool.acquire().await?, &[order]).await?;
        let line = |line: domain::PricedLine| OrderLine {
            sku: line.sku,
            quantity: line.quantity.units(),
            unit_price: line.unit_price,
        };
        let lines = lines.remove(&order_id).unwrap_or_default().into_iter().map(line).collect();
        Ok(ReserveStock { saga_id, order_id, lines })
    }

    async fn charge(&self, saga: &Commanded) -> Result<Charge, StepError> {
        let (saga_id, order_id) = ids(saga);
        let OrderRow { total, payment_method, .. } = self.order(saga).await?;
        Ok(Charge { saga_id, order_id, total, payment_method })
    }
}

fn ids(saga: &Commanded) -> (contracts::SagaId, OrderId) {
    (contracts::SagaId(saga.saga_id), OrderId(saga.business_key))
}

impl Coordinated for Business {
    type Command = Value;

    async fn prepare(&self, step: &'static Step, saga: &Commanded) -> Result<Value, StepError> {
        let (saga_id, order_id) = ids(saga);
        let body = match step.name {
            name if name == RESERVE_STOCK.name => serde_json::to_value(self.reserve_stock(saga).await?),
            name if name == RELEASE_STOCK.name => serde_json::to_value(ReleaseStock { saga_id, order_id }),
            _ => serde_json::to_value(self.charge(saga).await?),
        };
        body.map_err(StepError::failed)
    }

    async fn command(&self, step: &'static Step, saga: &Commanded, command: &Value) -> Result<Reply, Failure> {
        let transient = |error: &dyn std::error::Error| Failure::Transient(error.to_string());
        let server = if step.service == Some(INVENTORY) { &self.inventory_url } else { &self.payment_url };
        let url = format!("{server}{}", orchestrated::path(step));
        let request = self.client.post(url).bearer_auth(self.token.expose()).json(command);
        let request = request
            .header("traceparent", saga.context.trace.to_string())
            .header("x-correlation-id", &saga.context.correlation_id);
        let request = match saga.context.baggage_header() {
            Some(baggage) => request.header("baggage", baggage),
            None => request,
        };
        let request = request.build().map_err(|error| Failure::Permanent(error.to_string()))?;
        let response = self.calls.make_in(Some(step), request).await.map_err(|error| transient(&error))?;
        match response.status() {
            StatusCode::OK => {}
            status if status.is_client_error() && !REPEATABLE.contains(&status) => {
                return Err(Failure::Permanent(format!("the participant answered {status}")));
            }
            status => return Err(Failure::Transient(format!("the participant answered {status}"))),
        }
        Ok(match response.json().await.map_err(|error| transient(&error))? {
            Answer::Done => Reply::Done,
            Answer::Refused { reason } => Reply::Refused(reason),
        })
    }

    async fn apply(
        &self,
        tx: &mut StepTransaction<Request>,
        saga: &Commanded,
        effect: &Effect,
    ) -> Result<(), StepError> {
        let order_id = OrderId(saga.business_key);
        let mut orders = store::lock_orders(tx.conn(), [order_id]).await?;
        let order = orders.get_mut(&order_id).ok_or_else(|| StepError::failed(NO_ORDER))?;
        // The saga has made its transition in this transaction; the decision is about the moment before.
        let (status, ended) = match effect {
            Effect::Nothing => return Ok(()),
            Effect::Confirm => {
                applies(domain::confirm(order.status, Some(Status::InProgress)))?;
                tx.after_commit(self.ends.confirmed(order.total));
                (OrderStatus::Confirmed, order.end(OrderStatus::Confirmed, None))
            }
            Effect::Cancel { failed, refused, reason } => {
                applies(domain::cancel(order.status, Some(Status::InProgress)))?;
                let (code, detail) = (cancel_reason(failed, *refused), reason.clone());
                tx.after_commit(self.ends.cancelled(code));
                let cancellation = Cancellation { reason: Some(code), detail };
                (OrderStatus::Cancelled, order.end(OrderStatus::Cancelled, Some(cancellation)))
            }
        };
        Ok(store::end_orders(tx.conn(), status, &[ended]).await?)
    }
}

fn applies(ending: Ending) -> Result<(), StepError> {
    match ending {
        Ending::Apply => Ok(()),
        Ending::Skip(reason) => Err(StepError::failed(reason)),
    }
}

/// A step that was not answered in time is a timeout, too.
fn cancel_reason(failed: &Step, refused: bool) -> CancelReason {
    match failed.name {
        name if refused && name == RESERVE_STOCK.name => CancelReason::OutOfStock,
        name if refused && name == PROCESS_PAYMENT.name => CancelReason::PaymentRefused,
        _ => CancelReason::TimedOut,
    }
}

/// Handles a request to cancel an orchestrated order; its coordinator undoes the steps.
pub(crate) async fn cancel(
    app: &App,
    context: &Context,
    (order_id, saga_id): (OrderId, Uuid),
    reason: &str,
) -> Result<Option<CancelRequest>, StepError> {
    let request = Request { saga_id, context: context.clone() };
    let tx = StepTransaction::begin(&app.participant.http_outbox, app.twin.definition(), &CANCEL_ORDER_ON_REQUEST);
    let mut tx = tx.await?.lock(vec![request.clone()]).await?;
    tx.leave(&request);
    let mut orders = store::lock_orders(tx.conn(), [order_id]).await?;
    let Some(order) = orders.get_mut(&order_id) else { return Ok(None) };
    let outcome = domain::cancel_on_request(order.status, tx.status(&request), tx.is_past_pivot(&request));
    if outcome != CancelRequest::Apply {
        tx.commit_unchanged().await?;
        return Ok(Some(outcome));
    }
    let transition = (StepStatus::Completed, Transition::Compensate { by_customer: true });
    tx.record(&request, &CANCEL_ORDER_ON_REQUEST, transition, Some(reason.to_owned()))?;
    tx.after_commit(app.ends.cancelled(CancelReason::CustomerRequest));
    let cancellation = Cancellation { reason: Some(CancelReason::CustomerRequest), detail: reason.to_owned() };
    let ended = order.end(OrderStatus::Cancelled, Some(cancellation));
    store::end_orders(tx.conn(), OrderStatus::Cancelled, &[ended]).await?;
    app.twin.hand_over(&mut tx, &[saga_id]).await?;
    tx.commit().await?;
    Ok(Some(outcome))
}

/// Has the compensations of these orchestrated sagas go on, on an operator's request.
pub(crate) async fn resume(app: &App, saga_ids: &[Uuid], why: &str) -> Result<HashMap<Uuid, ResumeOutcome>, StepError> {
    let requests = saga_ids.iter().map(|saga_id| Request { saga_id: *saga_id, context: Context::background("resume") });
    let requests: Vec<Request> = requests.collect();
    let tx = StepTransaction::begin(&app.participant.http_outbox, app.twin.definition(), &DRIVE_COMPENSATION);
    let mut tx = tx.await?.lock(requests.clone()).await?;
    let mut outcomes = HashMap::with_capacity(requests.len());
    let mut resumed = Vec::new();
    for request in &requests {
        let outcome = match tx.status(request) {
            Some(status) if domain::may_resume(status) => {
                app.twin.resume(&mut tx, request, why.to_owned())?;
                resumed.push(request.saga_id);
                ResumeOutcome::Resumed
            }
            other => {
                tx.leave(request);
                other.map_or(ResumeOutcome::Unknown, ResumeOutcome::Refused)
            }
        };
        outcomes.insert(request.saga_id, outcome);
    }
    app.twin.hand_over(&mut tx, &resumed).await?;
    tx.commit().await?;
    Ok(outcomes)
}

/// The gauges of both kinds of sagas. Those that do not name the type are sums.
pub(crate) async fn read_gauges(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    let mut readings = saga_store::sample::read(pool, &SAGA).await?;
    for more in saga_store::sample::read(pool, &orchestrated::SAGA).await? {
        match readings.iter_mut().find(|same| same.name == more.name && same.labels == more.labels) {
            Some(same) => same.value += more.value,
            None => readings.push(more),
        }
    }
    Ok(readings)
}
