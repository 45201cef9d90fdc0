//! The saga's steps in the inventory service: one function per step, named as the step is.

use contracts::{
    OrderId,
    order_fulfillment::{
        OrderCancelled, OrderCreated, RELEASE_STOCK, RESERVE_STOCK, StockLine, StockReleased, StockReservationFailed,
        StockReserved,
    },
};
use messaging::{Batch, Delivery, StepError, StepResult};
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Decision, Reservation, Wanted},
    store,
};

/// Step 1: all lines of an order or none. An order that was cancelled before it came here has a tombstone.
pub(crate) async fn reserve_stock(app: App, batch: Batch<OrderCreated>) -> StepResult {
    let mut tx = app.step(&RESERVE_STOCK, batch).await?;
    let orders = tx.deliveries();
    let mut begun = store::begin_reservations(tx.conn(), &with_sagas(&orders, |e| e.order_id)).await?;
    let (orders, beaten): (Vec<_>, Vec<_>) = orders.iter().partition(|order| begun.remove(&order.event.order_id.0));
    for order in beaten {
        tx.skip(order, "the order has been answered or cancelled before")?;
    }
    let wanted = orders.iter().map(|order| Wanted::of(&order.event.lines)).collect::<Result<Vec<_>, _>>();
    let wanted = wanted.map_err(|unusable| StepError::Poison(unusable.into()))?;
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

/// Undoes step 1: what the order holds is given back. Who holds nothing gets an answer, too, and an
/// order that was never heard of gets a tombstone, so that it cannot reserve anything later.
pub(crate) async fn release_stock(app: App, batch: Batch<OrderCancelled>) -> StepResult {
    let mut tx = app.step(&RELEASE_STOCK, batch).await?;
    let cancellations = tx.deliveries();
    store::insert_tombstones(tx.conn(), &with_sagas(&cancellations, |e| e.order_id)).await?;
    let order_ids: Vec<Uuid> = cancellations.iter().map(|c| c.event.order_id.0).collect();
    let mut reservations = store::lock_reservations(tx.conn(), &order_ids).await?;
    let mut given_back = Vec::new();
    for cancellation in cancellations.iter() {
        let order_id = cancellation.event.order_id;
        let reservation = reservations.get_mut(&order_id.0);
        let reservation = reservation.ok_or_else(|| StepError::failed("a reservation was there and is gone"))?;
        let lines = reservation.release();
        given_back.extend(lines.iter().map(|line| (order_id.0, line.clone())));
        tx.undone(cancellation, reservation.version, &StockReleased { order_id, lines })?;
    }
    let units = domain::total(given_back.iter().map(|(_, line)| line));
    // Locked first, because an update alone would take the locks in an order of its own.
    store::lock_products(tx.conn(), units.keys()).await?;
    store::give_back_units(tx.conn(), &units).await?;
    store::release_lines(tx.conn(), &given_back).await?;
    store::save_reservations(tx.conn(), reservations.values()).await?;
    tx.commit().await
}

/// Each delivery's order with its saga.
fn with_sagas<E>(deliveries: &[Delivery<E>], order_id: fn(&E) -> OrderId) -> Vec<(Uuid, Uuid)> {
    deliveries.iter().filter_map(|d| Some((order_id(&d.event).0, d.meta.saga_id()?))).collect()
}
