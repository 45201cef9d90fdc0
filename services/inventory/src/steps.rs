//! The saga's steps in the inventory service: one function per step, named as the step.

use contracts::{
    OrderId, SagaId,
    order_fulfillment::{
        OrderCancelled, OrderCreated, RELEASE_STOCK, RESERVE_STOCK, StockLine, StockReleased, StockReservationFailed,
        StockReserved,
    },
};
use messaging::{Batch, Delivery, StepError, StepResult};
use saga_store::saga_of;
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Decision, Reservation, Wanted},
    store,
};

/// Step 1: reserves all lines of an order or none. An order whose cancellation arrived first has a tombstone, and is skipped.
pub(crate) async fn reserve_stock(app: App, batch: Batch<OrderCreated>) -> StepResult {
    let mut tx = app.participant.step(&RESERVE_STOCK, batch).await?;
    let deliveries = tx.deliveries();
    let mut requests = Vec::new();
    for order in deliveries.iter() {
        match Wanted::of(&order.event.lines) {
            Ok(wanted) => requests.push((order, wanted)),
            Err(unusable) => tx.defer(order, StepError::Poison(unusable.into())),
        }
    }
    let keys = with_sagas(requests.iter().map(|(order, _)| *order), |e| e.order_id)?;
    let mut begun = store::begin_reservations(tx.conn(), &keys).await?;
    // Of two deliveries for one order only the first reserves.
    let (requests, late): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|(order, _)| begun.remove(&order.event.order_id));
    for (order, _) in late {
        tx.skip(order, "the order has a reservation, or was cancelled")?;
    }
    let (orders, wanted): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
    let products = store::lock_products(tx.conn(), wanted.iter().flat_map(Wanted::skus)).await?;
    let decisions = domain::reserve(&wanted, &products);
    let (mut held, mut refused) = (Vec::new(), Vec::new());
    for (order, decision) in orders.into_iter().zip(decisions) {
        let order_id = order.event.order_id;
        match decision {
            Decision::Reserved(lines) => {
                held.extend(lines.iter().map(|line| (order_id.0, line.clone())));
                tx.advance(order, Reservation::DECIDED, &reserved(&order.event, lines))?;
            }
            Decision::Refused { reason, shortages } => {
                refused.push((order_id.0, reason.clone()));
                tx.after_commit(app.refusals.count());
                let refusal = StockReservationFailed { order_id, reason, shortages };
                tx.refuse(order, Reservation::DECIDED, &refusal)?;
            }
        }
    }
    store::refuse_reservations(tx.conn(), &refused).await?;
    store::insert_lines(tx.conn(), &held).await?;
    store::reserve_units(tx.conn(), &domain::total(held.iter().map(|(_, line)| line))).await?;
    tx.commit().await
}

fn reserved(order: &OrderCreated, lines: Vec<StockLine>) -> StockReserved {
    let OrderCreated { order_id, customer_id, total, payment_method, .. } = order.clone();
    StockReserved { order_id, customer_id, total, payment_method, lines }
}

/// Undoes step 1: releases what the order holds, and publishes the receipt also when it holds nothing. An unknown order gets a
/// tombstone, which turns a late step 1 into a no-op.
pub(crate) async fn release_stock(app: App, batch: Batch<OrderCancelled>) -> StepResult {
    let mut tx = app.participant.step(&RELEASE_STOCK, batch).await?;
    let cancellations = tx.deliveries();
    store::insert_tombstones(tx.conn(), &with_sagas(cancellations.iter(), |e| e.order_id)?).await?;
    let order_ids: Vec<Uuid> = cancellations.iter().map(|c| c.event.order_id.0).collect();
    let mut reservations = store::lock_reservations(tx.conn(), &order_ids).await?;
    let mut released = Vec::new();
    for cancellation in cancellations.iter() {
        let order_id = cancellation.event.order_id;
        let reservation = reservations.get_mut(&order_id.0);
        let reservation = reservation.ok_or_else(|| StepError::failed("a reservation does not exist any more"))?;
        let lines = reservation.release();
        released.extend(lines.iter().map(|line| (order_id.0, line.clone())));
        tx.undone(cancellation, reservation.version, &StockReleased { order_id, lines })?;
    }
    let units = domain::total(released.iter().map(|(_, line)| line));
    // Locked first, because an update alone would take the locks in no defined order.
    store::lock_products(tx.conn(), units.keys()).await?;
    store::release_units(tx.conn(), &units).await?;
    store::release_lines(tx.conn(), &released).await?;
    store::save_reservations(tx.conn(), reservations.values()).await?;
    tx.commit().await
}

/// The orders of the deliveries, each with its saga.
fn with_sagas<'a, E: 'a>(
    deliveries: impl Iterator<Item = &'a Delivery<E>>,
    order_id: fn(&E) -> OrderId,
) -> Result<Vec<(OrderId, SagaId)>, StepError> {
    deliveries.map(|delivery| Ok((order_id(&delivery.event), SagaId(saga_of(delivery)?)))).collect()
}
