//! The commands of a coordinator: the steps of the orchestrated saga, with the decisions of the choreographed one. A repeated
//! command is answered from the reservation, which an order has once.

use contracts::{
    OrderId, SagaId,
    orchestrated::{Answer, RELEASE_STOCK, RESERVE_STOCK, ReleaseStock, ReserveStock},
};
use messaging::{Context, StepError, UnitOfWork};

use crate::{
    App,
    domain::{self, Decision, ReservationStatus, Wanted},
    store,
};

/// The answer to a command about an order that belongs to another saga.
const OTHER_SAGA: &str = "the order belongs to another saga";

/// Step 1: reserves all lines of the order or none.
pub(crate) async fn reserve(app: App, context: Context, command: ReserveStock) -> Result<Answer, StepError> {
    let ReserveStock { saga_id, order_id, lines } = command;
    let wanted = Wanted::of(&lines).map_err(|unusable| StepError::Poison(unusable.into()))?;
    let mut work = app.participant.http_outbox.begin().await?;
    work.concerns(&context, &RESERVE_STOCK);
    if store::begin_reservations(work.conn(), &[(order_id, saga_id)]).await?.is_empty() {
        return answered_before(work, order_id, saga_id).await;
    }
    let products = store::lock_products(work.conn(), wanted.skus()).await?;
    let answer = match domain::reserve(&[wanted], &products).pop() {
        Some(Decision::Reserved(lines)) => {
            let held: Vec<_> = lines.iter().map(|line| (order_id.0, line.clone())).collect();
            store::insert_lines(work.conn(), &held).await?;
            store::reserve_units(work.conn(), &domain::total(&lines)).await?;
            Answer::Done
        }
        Some(Decision::Refused { reason, .. }) => {
            store::refuse_reservations(work.conn(), &[(order_id.0, reason.clone())]).await?;
            work.after_commit(app.refusals.count());
            Answer::Refused { reason }
        }
        None => return Err(StepError::failed("an order was not decided")),
    };
    work.commit().await?;
    Ok(answer)
}

/// The order has a reservation, or was cancelled.
async fn answered_before(mut work: UnitOfWork, order_id: OrderId, saga_id: SagaId) -> Result<Answer, StepError> {
    let found = store::find_reservation(work.conn(), order_id.0).await?;
    work.commit_read().await?;
    let found = found.ok_or_else(|| StepError::failed("a reservation does not exist any more"))?;
    if found.saga_id != saga_id {
        return Err(StepError::Poison(OTHER_SAGA.into()));
    }
    let refused = |reason: &str| Answer::Refused { reason: reason.to_owned() };
    Ok(match found.status {
        ReservationStatus::Reserved => Answer::Done,
        ReservationStatus::Refused => refused(found.reason.as_deref().unwrap_or("the stock does not suffice")),
        ReservationStatus::Released | ReservationStatus::Tombstone => refused("the order was cancelled"),
    })
}

/// Undoes step 1: releases what the order holds; an order without a reservation gets a tombstone, so that a late command
/// reserves nothing.
pub(crate) async fn release(app: App, context: Context, command: ReleaseStock) -> Result<Answer, StepError> {
    let ReleaseStock { saga_id, order_id } = command;
    let mut work = app.participant.http_outbox.begin().await?;
    work.concerns(&context, &RELEASE_STOCK);
    store::insert_tombstones(work.conn(), &[(order_id, saga_id)]).await?;
    let mut reservations = store::lock_reservations(work.conn(), &[order_id.0]).await?;
    let reservation = reservations.get_mut(&order_id.0);
    let reservation = reservation.ok_or_else(|| StepError::failed("a reservation does not exist any more"))?;
    if reservation.saga_id != saga_id.0 {
        return Err(StepError::Poison(OTHER_SAGA.into()));
    }
    let released: Vec<_> = reservation.release().into_iter().map(|line| (order_id.0, line)).collect();
    let units = domain::total(released.iter().map(|(_, line)| line));
    store::lock_products(work.conn(), units.keys()).await?;
    store::release_units(work.conn(), &units).await?;
    store::release_lines(work.conn(), &released).await?;
    store::save_reservations(work.conn(), reservations.values()).await?;
    work.commit().await?;
    Ok(Answer::Done)
}
