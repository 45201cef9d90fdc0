//! Placing an order: checked, priced and written in one transaction, once per idempotency key.

use std::collections::HashMap;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::LOCATION},
};
use bootstrap::{Json, Problem, RequestContext, detached};
use contracts::{
    ORDER, OrderId, SagaId, Sku,
    order_fulfillment::{CREATE_ORDER, OrderCreated, OrderLine},
};
use messaging::{Context, StepError, UnitOfWork, retry_contended};
use saga::Event;
use saga_store::NewSaga;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    orders::{self, OrderBody},
    problem, wait,
};
use crate::{
    App,
    catalogue::product_of,
    domain::{self, Objection, Priced, WantedLine},
    store::{self, AcceptedOrder, KeyUse},
};

static IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What a customer wants. Prices are order's own; a client never sends one.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceOrder {
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$", example = "alice")]
    customer_id: String,
    #[schema(min_items = 1, max_items = 100)]
    lines: Vec<PlaceOrderLine>,
    /// The card's token.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$", example = "tok_visa")]
    payment_method: String,
    #[schema(value_type = Option<Object>)]
    shipping_address: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlaceOrderLine {
    sku: Sku,
    #[schema(minimum = 1, maximum = 1_000_000)]
    quantity: i64,
}

/// What became of the request.
enum Placed {
    New(Box<OrderBody>),
    /// The key stands for this order already.
    Replayed(Uuid),
}

/// Why nothing was placed.
enum Refusal {
    Unacceptable(Vec<Objection>),
    KeyInFlight,
    KeyReused,
    Failed(StepError),
}

/// Place an order
///
/// The answer is the order, PENDING; with `Prefer: wait=N` it is the order as its saga ended, or as it is after N
/// seconds. A repeat with the same `Idempotency-Key` and body answers the same order.
#[utoipa::path(post, path = "/api/orders", tag = "orders", request_body = PlaceOrder,
    params(
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$", description = "1 to 128 visible ASCII characters, scoped to the customer"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, N up to 30 seconds"),
    ),
    responses(
        (status = 201, description = "Accepted", body = OrderBody,
            headers(("Location" = String, description = "The order"), ("Preference-Applied" = String, description = "The wait, if one was asked for"))),
        (status = 200, description = "Placed before under this key", body = OrderBody,
            headers(("Idempotency-Replayed" = String, description = "true"))),
        (status = 409, description = "A request with this key is in flight", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn place_order(
    State(app): State<App>,
    context: RequestContext,
    headers: HeaderMap,
    Json(wanted): Json<PlaceOrder>,
) -> Result<(StatusCode, HeaderMap, Json<OrderBody>), Problem> {
    wanted.check()?;
    let key = idempotency_key(&headers)?;
    let patience = wait::asked_for(&headers);
    let context = Context::of_request(context.correlation_id, &context.traceparent);
    let shared = app.clone();
    let write = async move { place(&shared, &context, &wanted, key.as_deref()).await.map_err(Problem::from) };
    let placed = detached(write).await?;
    let mut answer = HeaderMap::new();
    let (status, order_id) = match &placed {
        Placed::New(order) => (StatusCode::CREATED, order.order_id),
        Placed::Replayed(order_id) => (StatusCode::OK, *order_id),
    };
    if status == StatusCode::CREATED {
        answer.insert(LOCATION, location(order_id)?);
    } else {
        answer.insert(IDEMPOTENCY_REPLAYED.clone(), HeaderValue::from_static("true"));
    }
    if let Some(patience) = patience {
        // The order is accepted whatever happens while its end is awaited.
        if let Err(problem) = wait::until_ended(&app, order_id, patience).await {
            tracing::warn!(%order_id, %problem, "the end of the order could not be awaited");
        }
        answer.insert(wait::PREFERENCE_APPLIED.clone(), patience.applied());
    }
    let order = match placed {
        // Accepted just now: its answer needs no connection that another order could have.
        Placed::New(order) if patience.is_none() => *order,
        Placed::New(order) => orders::read(&app, order_id).await.unwrap_or(*order),
        Placed::Replayed(_) => orders::read(&app, order_id).await?,
    };
    Ok((status, answer, Json(order)))
}

impl PlaceOrder {
    /// What can be refused without looking anything up.
    fn check(&self) -> Result<(), Problem> {
        let named = |pointer: &str, text: &str| {
            let sound = (1..=128).contains(&text.chars().count()) && !text.chars().any(char::is_control);
            (!sound).then(|| (pointer.to_owned(), "1 to 128 characters, none of them control characters."))
        };
        let wrong = [named("/customer_id", &self.customer_id), named("/payment_method", &self.payment_method)];
        let mut wrong = wrong.into_iter().flatten();
        match wrong.next() {
            None => Ok(()),
            Some((pointer, detail)) => {
                Err(wrong.fold(Problem::invalid(pointer, detail), |p, (pointer, detail)| p.with_error(pointer, detail)))
            }
        }
    }

    /// The same for equal requests, however they were written.
    fn fingerprint(&self) -> Vec<u8> {
        let canonical = serde_json::to_vec(self).unwrap_or_default();
        Sha256::digest(canonical).to_vec()
    }
}

async fn place(app: &App, context: &Context, wanted: &PlaceOrder, key: Option<&str>) -> Result<Placed, Refusal> {
    let fingerprint = wanted.fingerprint();
    let key = key.map(|key| KeyUse { customer_id: &wanted.customer_id, key, fingerprint: &fingerprint });
    retry_contended(|| create_order(app, context, wanted, key.as_ref())).await
}

/// Step 0: the order, its saga, its event and its key, in one transaction.
async fn create_order(
    app: &App,
    context: &Context,
    wanted: &PlaceOrder,
    key: Option<&KeyUse<'_>>,
) -> Result<Placed, Refusal> {
    let mut work = app.participant.http_outbox.begin().await?;
    let placed = match key {
        Some(key) => order_of_key(&mut work, key).await,
        None => Ok(None),
    };
    let placed = match placed {
        Ok(Some(order_id)) => Ok(Placed::Replayed(order_id)),
        Ok(None) => write_order(app, &mut work, context, wanted, key).await,
        Err(refusal) => Err(refusal),
    };
    if matches!(placed, Ok(Placed::New(_))) {
        work.commit().await?;
    } else {
        // At once, because the key is held until then.
        work.rollback().await?;
    }
    placed
}

async fn write_order(
    app: &App,
    work: &mut UnitOfWork,
    context: &Context,
    wanted: &PlaceOrder,
    key: Option<&KeyUse<'_>>,
) -> Result<Placed, Refusal> {
    let definition = app.participant.definition;
    let priced = price(work, &wanted.lines).await?;
    let (order_id, saga_id) = (OrderId::new(), SagaId::new());
    let skus = wanted.lines.iter().map(|line| line.sku.as_str());
    let baggage = app.participant.baggage(order_id.0, &wanted.customer_id, skus);
    let context = context.clone().in_saga(saga_id.0, definition.saga_type).with_baggage(baggage);
    let event_id =
        work.publish(&CREATE_ORDER, &context, 1, &created(order_id, wanted, &priced)).map_err(StepError::from)?;
    let new = NewSaga {
        saga_id: saga_id.0,
        definition,
        business_key: order_id.0,
        first_step: &CREATE_ORDER,
        first_event_type: OrderCreated::TYPE.wire_name(),
        first_event_id: event_id,
        service: ORDER,
        deadline: definition.deadline,
    };
    saga_store::start(work, &context, &new).await?;
    let address = wanted.shipping_address.clone().map(Value::Object);
    let order = AcceptedOrder {
        order_id: order_id.0,
        saga_id: saga_id.0,
        customer_id: &wanted.customer_id,
        payment_method: &wanted.payment_method,
        shipping_address: address.as_ref(),
        priced: &priced,
    };
    let row = store::insert_order(work.conn(), &order).await?;
    if let Some(key) = key {
        store::insert_key(work.conn(), key, order_id.0).await?;
    }
    let body = orders::accepted(row, &priced).map_err(StepError::failed)?;
    Ok(Placed::New(Box::new(body)))
}

/// The order that the key stands for already, if any; holds the key for this transaction.
async fn order_of_key(work: &mut UnitOfWork, key: &KeyUse<'_>) -> Result<Option<Uuid>, Refusal> {
    if !store::try_key(work.conn(), key).await? {
        return Err(Refusal::KeyInFlight);
    }
    match store::find_key(work.conn(), key).await? {
        None => Ok(None),
        Some(stored) if stored.fingerprint == key.fingerprint => Ok(Some(stored.order_id)),
        Some(_) => Err(Refusal::KeyReused),
    }
}

async fn price(work: &mut UnitOfWork, lines: &[PlaceOrderLine]) -> Result<Priced, Refusal> {
    let mut skus: Vec<String> = lines.iter().map(|l| l.sku.to_string()).collect();
    skus.sort_unstable();
    skus.dedup();
    let rows = store::products_of(work.conn(), &skus).await?;
    let catalogue: HashMap<_, _> = rows.into_iter().filter_map(product_of).map(|p| (p.sku.clone(), p)).collect();
    let wanted: Vec<_> = lines.iter().map(|l| WantedLine { sku: l.sku.clone(), quantity: l.quantity }).collect();
    domain::price(&wanted, &catalogue).map_err(Refusal::Unacceptable)
}

fn created(order_id: OrderId, wanted: &PlaceOrder, priced: &Priced) -> OrderCreated {
    let line =
        |l: &domain::PricedLine| OrderLine { sku: l.sku.clone(), quantity: l.quantity, unit_price: l.unit_price };
    OrderCreated {
        order_id,
        customer_id: wanted.customer_id.clone(),
        lines: priced.lines.iter().map(line).collect(),
        total: priced.total,
        payment_method: wanted.payment_method.clone(),
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    if (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(Some(text.to_owned()));
    }
    Err(Problem::bad_request("An Idempotency-Key is 1 to 128 visible ASCII characters."))
}

fn location(order_id: Uuid) -> Result<HeaderValue, Problem> {
    HeaderValue::try_from(format!("/api/orders/{order_id}")).map_err(|e| Problem::internal(&e))
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Refusal::Failed(error.into())
    }
}

impl From<StepError> for Refusal {
    fn from(error: StepError) -> Self {
        Refusal::Failed(error)
    }
}

impl messaging::Contention for Refusal {
    fn is_contended(&self) -> bool {
        matches!(self, Refusal::Failed(error) if error.is_contended())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Unacceptable(objections) => {
                objections.into_iter().fold(Problem::unprocessable("The order cannot be accepted as it is."), |p, o| {
                    p.with_error(o.pointer, o.detail)
                })
            }
            Refusal::KeyInFlight => {
                Problem::conflict("A request with this Idempotency-Key is being answered just now.")
            }
            Refusal::KeyReused => Problem::unprocessable("This Idempotency-Key stands for an order with another body."),
            Refusal::Failed(error) => problem(error),
        }
    }
}
