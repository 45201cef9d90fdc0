//! Step 0: orders are priced, and written in one transaction with their sagas, events and idempotency keys.
//! Concurrent requests share a transaction (group commit).

use std::{collections::HashMap, sync::Arc};

use bootstrap::Problem;
use contracts::{
    OrderId, SagaId, Sku,
    catalogue::Product,
    orchestrated,
    order_fulfillment::{CREATE_ORDER, OrderCreated, OrderLine},
};
use messaging::{Context, StepError, retry_contended};
use orchestrator::Ended;
use saga_store::StepTransaction;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    App,
    domain::{self, CustomerStatus, Objection, Priced, PricedLine, WantedLine},
    store::{self, KeyUse, OrderRow, StoredKey},
};

/// A request to place an order.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) context: Context,
    pub(crate) customer_id: String,
    pub(crate) lines: Vec<WantedLine>,
    pub(crate) payment_method: String,
    pub(crate) shipping_address: Option<Value>,
    pub(crate) key: Option<KeyUse>,
}

/// The outcome of an accepted request.
pub(crate) enum Placed {
    New {
        order: Box<OrderRow>,
        priced: Priced,
        ended: Option<Ended>,
    },
    /// The key is that of an existing order.
    Replayed(Uuid),
}

impl Placed {
    pub(crate) fn order_id(&self) -> Uuid {
        match self {
            Placed::New { order, .. } => order.order_id.0,
            Placed::Replayed(order_id) => *order_id,
        }
    }
}

/// Who has the steps of an order's saga taken: the services by their events, or a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Choreographed,
    Orchestrated,
}

impl Style {
    /// Distinguishes the two for one idempotency key; nothing for the style that released builds had.
    pub(crate) const fn mark(self) -> &'static [u8] {
        match self {
            Style::Choreographed => b"",
            Style::Orchestrated => b"orchestrated",
        }
    }
}

/// The reason why no order was placed.
pub(crate) enum Refusal {
    Unacceptable(Vec<Objection>),
    KeyInFlight,
    KeyReused,
    /// New orders are refused for now.
    NotAdmitted(Problem),
    /// The error of the shared transaction.
    Failed(Arc<StepError>),
}

pub(crate) type Outcome = Result<Placed, Refusal>;

/// Places the orders; each has its own outcome, independent of the others.
pub(crate) async fn place(app: App, style: Style, placements: Vec<Placement>) -> Vec<Outcome> {
    match retry_contended(|| create_order(&app, style, &placements)).await {
        Ok(outcomes) => outcomes,
        // One of them cannot be written: each is retried in its own transaction.
        Err(StepError::Failed(_)) if placements.len() > 1 => {
            let mut outcomes = Vec::with_capacity(placements.len());
            for placement in placements {
                outcomes.push(place_alone(app.clone(), style, placement).await);
            }
            outcomes
        }
        Err(error) => {
            let error = Arc::new(error);
            placements.iter().map(|_| Err(Refusal::Failed(Arc::clone(&error)))).collect()
        }
    }
}

pub(crate) async fn place_alone(app: App, style: Style, placement: Placement) -> Outcome {
    let one = std::slice::from_ref(&placement);
    let outcomes =
        retry_contended(|| create_order(&app, style, one)).await.map_err(|e| Refusal::Failed(Arc::new(e)))?;
    outcomes.into_iter().next().unwrap_or_else(|| Err(Refusal::Failed(Arc::new(missing_rows()))))
}

/// The decision about a placement, before anything is written.
enum Decided<'a> {
    Replayed(Uuid),
    Accepted(Accepted<'a>),
}

/// An order that is accepted.
pub(crate) struct Accepted<'a> {
    pub(crate) order_id: OrderId,
    pub(crate) saga_id: SagaId,
    pub(crate) placement: &'a Placement,
    pub(crate) priced: Priced,
}

async fn create_order(app: &App, style: Style, placements: &[Placement]) -> Result<Vec<Outcome>, StepError> {
    let (definition, step) = match style {
        Style::Choreographed => (app.participant.definition, &CREATE_ORDER),
        Style::Orchestrated => (app.twin.definition(), &orchestrated::CREATE_ORDER),
    };
    let mut tx = StepTransaction::begin(&app.participant.http_outbox, definition, step).await?;
    let keys = look_up_keys(&mut tx, placements).await?;
    let catalogue = catalogue_of(&mut tx, placements).await?;
    let customers = match app.config.customers_required {
        true => Some(lock_customers(&mut tx, placements.iter().zip(&keys)).await?),
        false => None,
    };
    let decide = |(placement, key): (_, Result<_, Refusal>)| match key? {
        Some(order_id) => Ok(Decided::Replayed(order_id)),
        None => {
            app.admit(style).map_err(Refusal::NotAdmitted)?;
            accept(placement, &catalogue, customers.as_ref()).map(Decided::Accepted)
        }
    };
    let decided: Vec<Result<Decided<'_>, Refusal>> = placements.iter().zip(keys).map(decide).collect();
    let accepted = decided.iter().filter_map(|decided| match decided {
        Ok(Decided::Accepted(order)) => Some(order),
        Ok(Decided::Replayed(_)) | Err(_) => None,
    });
    let mut written = write_orders(app, style, tx, accepted.collect()).await?;
    let outcome = |decided: Result<_, _>| match decided? {
        Decided::Replayed(order_id) => Ok(Placed::Replayed(order_id)),
        Decided::Accepted(order) => {
            let row = written.remove(&order.order_id).ok_or_else(|| Refusal::Failed(Arc::new(missing_rows())))?;
            // Here, because whoever has sent the request may be gone.
            let ended = (style == Style::Orchestrated).then(|| app.twin.drive(order.saga_id.0));
            Ok(Placed::New { order: Box::new(row), priced: order.priced, ended })
        }
    };
    Ok(decided.into_iter().map(outcome).collect())
}

/// `customers` where they must be known.
fn accept<'a>(
    placement: &'a Placement,
    catalogue: &HashMap<Sku, Product>,
    customers: Option<&HashMap<String, CustomerStatus>>,
) -> Result<Accepted<'a>, Refusal> {
    let objection = customers.and_then(|known| domain::object_to(known.get(&placement.customer_id).copied()));
    match (domain::price(&placement.lines, catalogue), objection) {
        (Ok(priced), None) => Ok(Accepted { order_id: OrderId::new(), saga_id: SagaId::new(), placement, priced }),
        (priced, objection) => {
            let others = priced.err().unwrap_or_default();
            Err(Refusal::Unacceptable(objection.into_iter().chain(others).collect()))
        }
    }
}

fn missing_rows() -> StepError {
    StepError::failed("the database returned rows for some of the orders only")
}

/// For each placement the existing order of its key, if any; locks the keys for this transaction.
async fn look_up_keys(
    tx: &mut StepTransaction<()>,
    placements: &[Placement],
) -> Result<Vec<Result<Option<Uuid>, Refusal>>, StepError> {
    let keys: Vec<&KeyUse> = placements.iter().filter_map(|p| p.key.as_ref()).collect();
    if keys.is_empty() {
        return Ok(placements.iter().map(|_| Ok(None)).collect());
    }
    let held = store::try_keys(tx.conn(), &keys).await?;
    // A separate statement, which sees what was committed before the keys were locked.
    let stored = store::find_keys(tx.conn(), &keys).await?;
    if held.len() != keys.len() || stored.len() != keys.len() {
        return Err(missing_rows());
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

/// Locks the customers of new orders until the commit: a suspension that has committed is seen, and a later one waits. One
/// statement for all.
async fn lock_customers<'a>(
    tx: &mut StepTransaction<()>,
    placements: impl Iterator<Item = (&'a Placement, &'a Result<Option<Uuid>, Refusal>)>,
) -> Result<HashMap<String, CustomerStatus>, StepError> {
    let new = placements.filter(|(_, key)| matches!(key, Ok(None)));
    let customers: Vec<&str> = new.map(|(placement, _)| placement.customer_id.as_str()).collect();
    match customers.as_slice() {
        [] => Ok(HashMap::new()),
        customers => Ok(store::lock_customers(tx.conn(), customers).await?),
    }
}

async fn catalogue_of(
    tx: &mut StepTransaction<()>,
    placements: &[Placement],
) -> Result<HashMap<Sku, Product>, StepError> {
    let mut skus: Vec<String> = placements.iter().flat_map(|p| &p.lines).map(|line| line.sku.to_string()).collect();
    skus.sort_unstable();
    skus.dedup();
    let rows = store::products_of(tx.conn(), &skus).await?;
    Ok(rows.into_iter().map(|row| (row.product.sku.clone(), row.product)).collect())
}

/// Writes the orders, their sagas, events and keys, and commits.
async fn write_orders(
    app: &App,
    style: Style,
    mut tx: StepTransaction<()>,
    orders: Vec<&Accepted<'_>>,
) -> Result<HashMap<OrderId, OrderRow>, StepError> {
    if orders.is_empty() {
        // The orders of replayed keys are replicated before they are answered again.
        tx.commit_unchanged().await?;
        return Ok(HashMap::new());
    }
    for order in &orders {
        let Placement { context, customer_id, lines, .. } = order.placement;
        let baggage = app.participant.baggage(order.order_id.0, customer_id, lines.iter().map(|l| l.sku.as_str()));
        let context = context.clone().with_baggage(baggage);
        match style {
            Style::Choreographed => tx.start(order.saga_id.0, order.order_id.0, context, &created(order))?,
            Style::Orchestrated => tx.start_orchestrated(order.saga_id.0, order.order_id.0, context),
        }
    }
    if style == Style::Orchestrated {
        let saga_ids: Vec<Uuid> = orders.iter().map(|order| order.saga_id.0).collect();
        app.twin.begin(&mut tx, &saga_ids).await?;
    }
    let rows = store::insert_orders(tx.conn(), &orders).await?;
    let keys: Vec<_> = orders.iter().filter_map(|o| Some((o.placement.key.as_ref()?, o.order_id.0))).collect();
    if !keys.is_empty() {
        store::insert_keys(tx.conn(), &keys).await?;
    }
    if rows.len() != orders.len() {
        return Err(missing_rows());
    }
    tx.commit().await?;
    Ok(rows.into_iter().map(|row| (row.order_id, row)).collect())
}

fn created(order: &Accepted<'_>) -> OrderCreated {
    let line =
        |l: &PricedLine| OrderLine { sku: l.sku.clone(), quantity: l.quantity.units(), unit_price: l.unit_price };
    OrderCreated {
        order_id: order.order_id,
        customer_id: order.placement.customer_id.clone(),
        lines: order.priced.lines.iter().map(line).collect(),
        total: order.priced.total,
        payment_method: order.placement.payment_method.clone(),
    }
}
