//! One function per step, named as the step is.

use messaging::{Batch, Context, Outbox, StepError, StepResult};
use saga::{Event, StepOn};
use saga_store::StepTransaction;
use uuid::Uuid;

use crate::booking::*;

pub async fn request_trip(flight: &Outbox, trip: Uuid) -> StepResult {
    let mut tx = StepTransaction::begin(flight, &SAGA, &REQUEST_TRIP).await?;
    sqlx::query("insert into trip (trip) values ($1)").bind(trip).execute(tx.conn()).await?;
    tx.start(trip, trip, Context::background(trip), &TripRequested { trip })?;
    tx.commit().await
}

pub async fn book_room(hotel: Outbox, batch: Batch<TripRequested>) -> StepResult {
    let mut tx = StepTransaction::take(&hotel, &SAGA, &BOOK_ROOM, batch).await?;
    for request in tx.deliveries().iter() {
        let trip = request.event.trip;
        if !taken(tx.conn(), "update hotel set rooms_left = rooms_left - 1 where rooms_left > 0").await? {
            tx.refuse(request, 1, &RoomRefused { trip })?;
            continue;
        }
        sqlx::query("insert into room (trip) values ($1)").bind(trip).execute(tx.conn()).await?;
        tx.advance(request, 1, &RoomBooked { trip })?;
    }
    tx.commit().await
}

pub async fn book_seat(flight: Outbox, batch: Batch<RoomBooked>) -> StepResult {
    let mut tx = StepTransaction::take(&flight, &SAGA, &BOOK_SEAT, batch).await?;
    for booked in tx.deliveries().iter() {
        let trip = booked.event.trip;
        if !end(tx.conn(), trip, "BOOKED").await? {
            tx.skip(booked, "the trip has ended")?;
        } else if taken(tx.conn(), "update plane set seats_left = seats_left - 1 where seats_left > 0").await? {
            tx.complete(booked, 2, &TripBooked { trip })?;
        } else {
            sqlx::query("update trip set status = 'REQUESTED' where trip = $1").bind(trip).execute(tx.conn()).await?;
            tx.refuse(booked, 2, &SeatRefused { trip })?;
        }
    }
    tx.commit().await
}

pub async fn cancel_roomless_trip(flight: Outbox, batch: Batch<RoomRefused>) -> StepResult {
    cancel(flight, &CANCEL_ROOMLESS_TRIP, batch, |event| event.trip).await
}

pub async fn cancel_seatless_trip(flight: Outbox, batch: Batch<SeatRefused>) -> StepResult {
    cancel(flight, &CANCEL_SEATLESS_TRIP, batch, |event| event.trip).await
}

pub async fn cancel_late_trip(flight: Outbox, batch: Batch<TripTimedOut>) -> StepResult {
    cancel(flight, &CANCEL_LATE_TRIP, batch, |event| event.trip).await
}

async fn cancel<E: Event>(
    flight: Outbox,
    step: &'static StepOn<E>,
    batch: Batch<E>,
    trip: fn(&E) -> Uuid,
) -> StepResult {
    let mut tx = StepTransaction::take(&flight, &SAGA, step, batch).await?;
    for cause in tx.deliveries().iter() {
        let trip = trip(&cause.event);
        if end(tx.conn(), trip, "CANCELLED").await? {
            tx.compensate(cause, 3, &TripCancelled { trip }, step.name)?;
        } else {
            tx.skip(cause, "the trip has ended")?;
        }
    }
    tx.commit().await
}

/// Publishes its receipt also when there is no room to release.
pub async fn release_room(hotel: Outbox, batch: Batch<TripCancelled>) -> StepResult {
    let mut tx = StepTransaction::take(&hotel, &SAGA, &RELEASE_ROOM, batch).await?;
    for cancellation in tx.deliveries().iter() {
        let trip = cancellation.event.trip;
        let room = sqlx::query("delete from room where trip = $1").bind(trip).execute(tx.conn()).await?;
        let release = sqlx::query("update hotel set rooms_left = rooms_left + $1").bind(room.rows_affected() as i32);
        release.execute(tx.conn()).await?;
        tx.undone(cancellation, 2, &RoomReleased { trip })?;
    }
    tx.commit().await
}

/// Ends a trip, unless it has ended.
async fn end(conn: &mut sqlx::PgConnection, trip: Uuid, status: &str) -> Result<bool, StepError> {
    let ended = sqlx::query("update trip set status = $2 where trip = $1 and status = 'REQUESTED'");
    Ok(ended.bind(trip).bind(status).execute(conn).await?.rows_affected() == 1)
}

async fn taken(conn: &mut sqlx::PgConnection, update: &'static str) -> Result<bool, StepError> {
    Ok(sqlx::query(update).execute(conn).await?.rows_affected() == 1)
}
