//! Step 0: orders are priced and written in one transaction with their sagas, their events and their idempotency keys.
//! As in every step, those that come together are written together.

use std::{collections::HashMap, sync::Arc};

use contracts::{
    ORDER, OrderId, SagaId, Sku,
    catalogue::Product,
    order_fulfillment::{CREATE_ORDER, OrderCreated, OrderLine},
};
use messaging::{Context, StepError, UnitOfWork, retry_contended};
use saga::Event;
use saga_store::{FirstStep, NewSaga};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    App,
    catalogue::product_of,
    domain::{self, Objection, Priced, PricedLine, WantedLine},
    store::{self, AcceptedOrder, KeyUse, OrderRow, StoredKey},
};

/// An order that somebody wants to place.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) context: Context,
    pub(crate) customer_id: String,
    pub(crate) lines: Vec<WantedLine>,
    pub(crate) payment_method: String,
    pub(crate) shipping_address: Option<Value>,
    pub(crate) key: Option<KeyUse>,
}

/// What became of it.
pub(crate) enum Placed {
    New(Box<OrderRow>, Priced),
    /// The key stands for this order already.
    Replayed(Uuid),
}

/// Why nothing was placed.
pub(crate) enum Refusal {
    Unacceptable(Vec<Objection>),
    KeyInFlight,
    KeyReused,
    /// The same for all who were to be written together.
    Failed(Arc<StepError>),
}

pub(crate) type Outcome = Result<Placed, Refusal>;

/// Places the orders; each has an outcome of its own, whatever the others are like.
pub(crate) async fn place(app: App, placements: Vec<Placement>) -> Vec<Outcome> {
    match retry_contended(|| create_orders(&app, &placements)).await {
        Ok(outcomes) => outcomes,
        // One of them cannot be written; it stands alone in the end.
        Err(StepError::Failed(_)) if placements.len() > 1 => {
            let mut outcomes = Vec::with_capacity(placements.len());
            for placement in placements {
                outcomes.push(place_alone(app.clone(), placement).await);
            }
            outcomes
        }
        Err(error) => {
            let error = Arc::new(error);
            placements.iter().map(|_| Err(Refusal::Failed(Arc::clone(&error)))).collect()
        }
    }
}

pub(crate) async fn place_alone(app: App, placement: Placement) -> Outcome {
    let one = std::slice::from_ref(&placement);
    let outcomes = retry_contended(|| create_orders(&app, one)).await.map_err(|e| Refusal::Failed(Arc::new(e)))?;
    outcomes.into_iter().next().unwrap_or_else(|| Err(Refusal::Failed(Arc::new(not_all()))))
}

/// An order that is accepted.
struct Accepted<'a> {
    order_id: OrderId,
    saga_id: SagaId,
    placement: &'a Placement,
    priced: Priced,
}

/// What is decided about a placement before anything is written.
enum Decided {
    Replayed(Uuid),
    Refused(Refusal),
    Accepted(OrderId),
}

async fn create_orders(app: &App, placements: &[Placement]) -> Result<Vec<Outcome>, StepError> {
    let mut work = app.participant.http_outbox.begin().await?;
    let keys = look_up_keys(&mut work, placements).await?;
    let catalogue = catalogue_of(&mut work, placements).await?;
    let (mut decided, mut accepted) = (Vec::with_capacity(placements.len()), Vec::new());
    for (placement, key) in placements.iter().zip(keys) {
        decided.push(match key {
            Err(refusal) => Decided::Refused(refusal),
            Ok(Some(order_id)) => Decided::Replayed(order_id),
            Ok(None) => match domain::price(&placement.lines, &catalogue) {
                Err(objections) => Decided::Refused(Refusal::Unacceptable(objections)),
                Ok(priced) => {
                    let order_id = OrderId::new();
                    accepted.push(Accepted { order_id, saga_id: SagaId::new(), placement, priced });
                    Decided::Accepted(order_id)
                }
            },
        });
    }
    let mut written = write_orders(app, work, accepted).await?;
    let outcome = |decided| match decided {
        Decided::Replayed(order_id) => Ok(Placed::Replayed(order_id)),
        Decided::Refused(refusal) => Err(refusal),
        Decided::Accepted(order_id) => written.remove(&order_id.0).ok_or_else(|| Refusal::Failed(Arc::new(not_all()))),
    };
    Ok(decided.into_iter().map(outcome).collect())
}

fn not_all() -> StepError {
    StepError::failed("the database answered for some of the orders only")
}

/// For each placement the order that its key stands for already, if any; holds the keys for this transaction.
async fn look_up_keys(
    work: &mut UnitOfWork,
    placements: &[Placement],
) -> Result<Vec<Result<Option<Uuid>, Refusal>>, StepError> {
    let keys: Vec<&KeyUse> = placements.iter().filter_map(|p| p.key.as_ref()).collect();
    if keys.is_empty() {
        return Ok(placements.iter().map(|_| Ok(None)).collect());
    }
    let held = store::try_keys(work.conn(), &keys).await?;
    // A statement of its own, which sees what was committed before the keys were free.
    let stored = store::find_keys(work.conn(), &keys).await?;
    if held.len() != keys.len() || stored.len() != keys.len() {
        return Err(not_all());
    }
    let mut found = keys.iter().enumerate().zip(held).zip(stored).map(|(((place, key), held), stored)| {
        let same = |other: &&KeyUse| other.key == key.key && other.customer_id == key.customer_id;
        match stored {
            _ if !held => Err(Refusal::KeyInFlight),
            None if keys.iter().take(place).any(same) => Err(Refusal::KeyInFlight),
            None => Ok(None),
            Some(StoredKey { order_id, fingerprint }) if fingerprint == key.fingerprint => Ok(Some(order_id)),
            Some(_) => Err(Refusal::KeyReused),
        }
    });
    Ok(placements.iter().map(|p| p.key.as_ref().and_then(|_| found.next()).unwrap_or(Ok(None))).collect())
}

async fn catalogue_of(work: &mut UnitOfWork, placements: &[Placement]) -> Result<HashMap<Sku, Product>, StepError> {
    let mut skus: Vec<String> = placements.iter().flat_map(|p| &p.lines).map(|line| line.sku.to_string()).collect();
    skus.sort_unstable();
    skus.dedup();
    let rows = store::products_of(work.conn(), &skus).await?;
    Ok(rows.into_iter().filter_map(product_of).map(|product| (product.sku.clone(), product)).collect())
}

/// Writes the orders, their sagas, events and keys, and commits.
async fn write_orders(
    app: &App,
    mut work: UnitOfWork,
    orders: Vec<Accepted<'_>>,
) -> Result<HashMap<Uuid, Placed>, StepError> {
    if orders.is_empty() {
        // At once, because the keys are held until then.
        work.rollback().await?;
        return Ok(HashMap::new());
    }
    let definition = app.participant.definition;
    let mut sagas = Vec::with_capacity(orders.len());
    for order in &orders {
        let skus = order.placement.lines.iter().map(|line| line.sku.as_str());
        let baggage = app.participant.baggage(order.order_id.0, &order.placement.customer_id, skus);
        let context =
            order.placement.context.clone().in_saga(order.saga_id.0, definition.saga_type).with_baggage(baggage);
        let first_event_id = work.publish(&CREATE_ORDER, &context, 1, &created(order))?;
        sagas.push(NewSaga { saga_id: order.saga_id.0, business_key: order.order_id.0, first_event_id, context });
    }
    let first = FirstStep {
        definition,
        step: &CREATE_ORDER,
        event_type: OrderCreated::TYPE.wire_name(),
        service: ORDER,
        deadline: definition.deadline,
    };
    saga_store::start(&mut work, &first, &sagas).await?;
    let rows = store::insert_orders(work.conn(), &orders.iter().map(row_of).collect::<Vec<_>>()).await?;
    let keys: Vec<_> = orders.iter().filter_map(|o| Some((o.placement.key.as_ref()?, o.order_id.0))).collect();
    if !keys.is_empty() {
        store::insert_keys(work.conn(), &keys).await?;
    }
    if rows.len() != orders.len() {
        return Err(not_all());
    }
    work.commit().await?;
    let mut prices: HashMap<Uuid, Priced> = orders.into_iter().map(|o| (o.order_id.0, o.priced)).collect();
    let placed = |row: OrderRow| {
        let (order_id, priced) = (row.order_id, prices.remove(&row.order_id)?);
        Some((order_id, Placed::New(Box::new(row), priced)))
    };
    Ok(rows.into_iter().filter_map(placed).collect())
}

fn row_of<'a>(order: &'a Accepted<'_>) -> AcceptedOrder<'a> {
    AcceptedOrder {
        order_id: order.order_id.0,
        saga_id: order.saga_id.0,
        customer_id: &order.placement.customer_id,
        payment_method: &order.placement.payment_method,
        shipping_address: order.placement.shipping_address.clone(),
        priced: &order.priced,
    }
}

fn created(order: &Accepted<'_>) -> OrderCreated {
    let line = |l: &PricedLine| OrderLine { sku: l.sku.clone(), quantity: l.quantity, unit_price: l.unit_price };
    OrderCreated {
        order_id: order.order_id,
        customer_id: order.placement.customer_id.clone(),
        lines: order.priced.lines.iter().map(line).collect(),
        total: order.priced.total,
        payment_method: order.placement.payment_method.clone(),
    }
}
