//! A service, and its provisioning.

use std::time::Duration;

use faults::{FaultPoint, FaultSpec, Faults, Kind};
use messaging::{Bus, Consumer, Metrics, Outbox, Relay, Subscription, subscribe, topology::Topology};
use saga::{Service, Timeout};
use saga_store::timeout::Detector;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{booking::*, steps};

/// Creates tables, streams and consumers. Idempotent.
pub async fn provision(database: &PgConnectOptions, nats: &str) -> anyhow::Result<()> {
    saga_store::migrate(database).await?;
    let tables = [
        "create table if not exists plane as select 0 as seats_left;
        create table if not exists trip (trip uuid primary key, status text not null default 'REQUESTED')",
        "create table if not exists hotel as select 0 as rooms_left;
        create table if not exists room (trip uuid primary key)",
    ];
    for (service, tables) in [FLIGHT, HOTEL].into_iter().zip(tables) {
        messaging::migrate(database, service.0).await?;
        sqlx::raw_sql(tables).execute(&pool(database, service).await?).await?;
    }
    // In production one process keeps running `Topology::run`.
    Topology::of([FLIGHT, HOTEL], SAGA.steps.iter().copied()).ensure(&async_nats::connect(nats).await?).await?;
    Ok(())
}

pub async fn pool(database: &PgConnectOptions, service: Service) -> anyhow::Result<PgPool> {
    let options = database.clone().options([("search_path", format!("{service}, saga"))]);
    Ok(PgPoolOptions::new().max_connections(6).connect_with(options).await?)
}

pub async fn outbox(
    database: &PgConnectOptions,
    nats: &str,
    service: Service,
    faults: Faults,
) -> anyhow::Result<Outbox> {
    let bus = Bus::new(async_nats::connect(nats).await?, service).with_faults(faults);
    Ok(Outbox::new(pool(database, service).await?, bus, Metrics::default()))
}

/// Faults that crash this process at its first pass of the point.
pub fn crash_at(point: Option<FaultPoint>) -> anyhow::Result<Faults> {
    let Some(point) = point else { return Ok(Faults::none()) };
    let faults = Faults::armable();
    faults.arm(FaultSpec { first: Some(1), ..FaultSpec::new(point, Kind::Crash) }, "sweep")?;
    Ok(faults)
}

/// Runs the service until its process ends.
pub async fn run(outbox: Outbox) -> anyhow::Result<()> {
    let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
    running.spawn(Relay { open_events: saga_store::open_events, ..Relay::of(&outbox) }.run(stop.clone()));
    let every = Duration::from_secs(1);
    let event = |due: &saga_store::timeout::DueSaga| TripTimedOut::of(due.expired());
    let (step, definition) = (&DETECT_TIMEOUT, &SAGA);
    let (auto_compensate, metrics) = (true, Metrics::default());
    let detector =
        Detector { outbox: outbox.clone(), definition, step, event, every, batch: 100, auto_compensate, metrics };
    running.spawn(detector.run(stop.clone()));
    for subscription in subscriptions(&outbox) {
        for publisher in subscription.event.publishers {
            running.spawn(Consumer::new(&outbox, subscription.clone(), *publisher).run(stop.clone()));
        }
    }
    running.join_all().await;
    Ok(())
}

fn subscriptions(outbox: &Outbox) -> Vec<Subscription> {
    match outbox.service() {
        HOTEL => {
            vec![subscribe(outbox, &BOOK_ROOM, steps::book_room), subscribe(outbox, &RELEASE_ROOM, steps::release_room)]
        }
        _ => vec![
            subscribe(outbox, &BOOK_SEAT, steps::book_seat),
            subscribe(outbox, &CANCEL_ROOMLESS_TRIP, steps::cancel_roomless_trip),
            subscribe(outbox, &CANCEL_SEATLESS_TRIP, steps::cancel_seatless_trip),
            subscribe(outbox, &CANCEL_LATE_TRIP, steps::cancel_late_trip),
        ],
    }
}
