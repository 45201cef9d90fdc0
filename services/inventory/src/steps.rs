//! The saga's steps in the inventory service: one function per step, named as the step is.

use std::collections::HashMap;

use contracts::{
    INVENTORY,
    order_fulfillment::{
        OrderCancelled, OrderCreated, RELEASE_STOCK, RESERVE_STOCK, StockLine, StockReleased, StockReservationFailed,
        StockReserved,
    },
};
use messaging::{Batch, Committed, Delivery, StepError, UnitOfWork};
use saga::{Event, StepStatus, Transition};
use saga_store::{Recorded, Sagas};
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Decision, Reservation, Wanted},
    store,
};

/// Step 1: all lines of an order or none.
pub(crate) async fn reserve_stock(app: App, batch: Batch<OrderCreated>) -> Result<Committed, StepError> {
    let (mut work, orders) = app.participant.outbox.claim(batch).await?;
    let mut sagas = lock_sagas(&app, &mut work, &orders).await?;
    let orders = without_latecomers(&mut work, &mut sagas, orders).await?;
    let wanted = orders.iter().map(|order| Wanted::of(&order.event.lines)).collect::<Result<Vec<_>, _>>();
    let wanted = wanted.map_err(|unusable| StepError::Poison(unusable.into()))?;
    let products = store::lock_products(work.conn(), wanted.iter().flat_map(Wanted::skus)).await?;
    let decisions = domain::reserve(&wanted, &products);
    write_decisions(&mut work, &orders, &decisions).await?;
    for (order, decision) in orders.iter().zip(decisions) {
        match decision {
            Decision::Reserved(lines) => tell_reserved(&mut work, &mut sagas, order, lines)?,
            Decision::Refused { reason, shortages } => {
                let refusal = StockReservationFailed { order_id: order.event.order_id, reason, shortages };
                tell_refused(&mut work, &mut sagas, order, refusal)?;
            }
        }
    }
    sagas.save(&mut work).await?;
    work.commit().await
}

/// Undoes step 1: what the order holds is given back. Who holds nothing gets an answer, too, and an
/// order that was never heard of gets a tombstone, so that it cannot reserve anything later.
pub(crate) async fn release_stock(app: App, batch: Batch<OrderCancelled>) -> Result<Committed, StepError> {
    let (mut work, cancellations) = app.participant.outbox.claim(batch).await?;
    let mut sagas = lock_sagas(&app, &mut work, &cancellations).await?;
    store::insert_tombstones(work.conn(), &with_sagas(&cancellations, |c| c.order_id.0)?).await?;
    let order_ids: Vec<Uuid> = cancellations.iter().map(|c| c.event.order_id.0).collect();
    let mut reservations = store::lock_reservations(work.conn(), &order_ids).await?;
    let mut given_back = Vec::new();
    for Delivery { event, meta } in &cancellations {
        let reservation = reservations.get_mut(&event.order_id.0);
        let reservation = reservation.ok_or_else(|| StepError::failed("a reservation was there and is gone"))?;
        let lines = reservation.release();
        given_back.extend(lines.iter().map(|line| (event.order_id.0, line.clone())));
        let context = meta.context();
        let receipt = StockReleased { order_id: event.order_id, lines };
        let event_id = work.publish(&RELEASE_STOCK, &context, reservation.version, &receipt)?;
        sagas.record(
            &context,
            Recorded {
                step: &RELEASE_STOCK,
                status: StepStatus::Compensated,
                transition: Transition::Receipt { from: INVENTORY },
                event_type: StockReleased::TYPE.wire_name(),
                event_id: Some(event_id),
                reason: None,
            },
        )?;
    }
    write_release(&mut work, &reservations, &given_back).await?;
    sagas.save(&mut work).await?;
    work.commit().await
}

/// Leaves out, and journals as skipped, what comes too late: the saga has turned back meanwhile (its
/// cancellation will write the tombstone), or the cancellation was here first. The others have a
/// reservation now.
async fn without_latecomers(
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    orders: Vec<Delivery<OrderCreated>>,
) -> Result<Vec<Delivery<OrderCreated>>, StepError> {
    let (timely, late): (Vec<_>, Vec<_>) = orders.into_iter().partition(|o| sagas.moves_forward(o.meta.saga_id()));
    skip(sagas, &late, "the saga does not move forward any more")?;
    let mut begun = store::begin_reservations(work.conn(), &with_sagas(&timely, |o| o.order_id.0)?).await?;
    let (first, beaten): (Vec<_>, Vec<_>) = timely.into_iter().partition(|o| begun.remove(&o.event.order_id.0));
    skip(sagas, &beaten, "the order has been answered or cancelled before")?;
    Ok(first)
}

fn skip(sagas: &mut Sagas, orders: &[Delivery<OrderCreated>], reason: &str) -> Result<(), StepError> {
    for order in orders {
        sagas.skip(&order.meta.context(), &RESERVE_STOCK, OrderCreated::TYPE.wire_name(), reason)?;
    }
    Ok(())
}

async fn write_decisions(
    work: &mut UnitOfWork,
    orders: &[Delivery<OrderCreated>],
    decisions: &[Decision],
) -> Result<(), StepError> {
    let mut refused = Vec::new();
    let mut held = Vec::new();
    for (order, decision) in orders.iter().zip(decisions) {
        let order_id = order.event.order_id.0;
        match decision {
            Decision::Reserved(lines) => held.extend(lines.iter().map(|line| (order_id, line.clone()))),
            Decision::Refused { reason, .. } => refused.push((order_id, reason.clone())),
        }
    }
    store::refuse_reservations(work.conn(), &refused).await?;
    store::insert_lines(work.conn(), &held).await?;
    store::reserve_units(work.conn(), &domain::total(held.iter().map(|(_, line)| line))).await?;
    Ok(())
}

fn tell_reserved(
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    order: &Delivery<OrderCreated>,
    lines: Vec<StockLine>,
) -> Result<(), StepError> {
    let context = order.meta.context();
    let OrderCreated { order_id, customer_id, total, payment_method, .. } = order.event.clone();
    let reserved = StockReserved { order_id, customer_id, total, payment_method, lines };
    let event_id = work.publish(&RESERVE_STOCK, &context, Reservation::DECIDED, &reserved)?;
    sagas.record(
        &context,
        Recorded {
            step: &RESERVE_STOCK,
            status: StepStatus::Completed,
            transition: Transition::Advance { step: RESERVE_STOCK.number },
            event_type: StockReserved::TYPE.wire_name(),
            event_id: Some(event_id),
            reason: None,
        },
    )
}

fn tell_refused(
    work: &mut UnitOfWork,
    sagas: &mut Sagas,
    order: &Delivery<OrderCreated>,
    refusal: StockReservationFailed,
) -> Result<(), StepError> {
    let context = order.meta.context();
    let event_id = work.publish(&RESERVE_STOCK, &context, Reservation::DECIDED, &refusal)?;
    sagas.record(
        &context,
        Recorded {
            step: &RESERVE_STOCK,
            status: StepStatus::Failed,
            transition: Transition::Stay,
            event_type: StockReservationFailed::TYPE.wire_name(),
            event_id: Some(event_id),
            reason: Some(refusal.reason),
        },
    )
}

async fn write_release(
    work: &mut UnitOfWork,
    reservations: &HashMap<Uuid, Reservation>,
    given_back: &[(Uuid, StockLine)],
) -> Result<(), StepError> {
    let units = domain::total(given_back.iter().map(|(_, line)| line));
    // Locked first, because an update alone would take the locks in an order of its own.
    store::lock_products(work.conn(), units.keys()).await?;
    store::give_back_units(work.conn(), &units).await?;
    store::release_lines(work.conn(), given_back).await?;
    store::save_reservations(work.conn(), reservations.values()).await?;
    Ok(())
}

async fn lock_sagas<E>(app: &App, work: &mut UnitOfWork, batch: &[Delivery<E>]) -> Result<Sagas, StepError> {
    let ids = batch.iter().filter_map(|d| d.meta.saga_id());
    saga_store::lock(work.conn(), app.participant.definition, INVENTORY, ids).await
}

/// Each delivery's order with its saga. Nobody publishes these events outside a saga.
fn with_sagas<E>(batch: &[Delivery<E>], order_id: fn(&E) -> Uuid) -> Result<Vec<(Uuid, Uuid)>, StepError> {
    let outside = || StepError::Poison("the event belongs to no saga".into());
    batch.iter().map(|d| Ok((order_id(&d.event), d.meta.saga_id().ok_or_else(outside)?))).collect()
}
