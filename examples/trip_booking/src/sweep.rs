//! Crashes both services at every point that they pass, restarts them, waits until every trip has ended, and audits.

use std::{process::Command, time::Duration};

use anyhow::ensure;
use faults::{FaultPoint, Faults};
use sqlx::{PgPool, postgres::PgConnectOptions};
use testkit::{Database, Nats, Process, eventually};
use uuid::Uuid;

use crate::{
    audit::audit,
    booking::{FLIGHT, HOTEL},
    service, steps,
};

const POINTS: [FaultPoint; 7] = [
    FaultPoint::BeforeInboxClaim,
    FaultPoint::InStep,
    FaultPoint::BeforeCommit,
    FaultPoint::AfterCommitBeforePublish,
    FaultPoint::AfterCommitBeforeAck,
    FaultPoint::BusPublish,
    FaultPoint::AfterPublishBeforeMark,
];

pub async fn sweep() -> anyhow::Result<()> {
    let (database, nats) = (Database::empty().await?, Nats::start().await?);
    let (url, nats_url) = (database.admin_url(), nats.url());
    let options: PgConnectOptions = url.parse()?;
    service::provision(&options, &nats_url).await?;
    let flight = service::outbox(&options, &nats_url, FLIGHT, Faults::none()).await?;
    let pool = service::pool(&options, FLIGHT).await?;
    let start = |service: saga::Service, point: Option<FaultPoint>| {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(service.0).args(point.map(FaultPoint::as_str)).env("DATABASE_URL", &url).env("NATS_URL", &nats_url);
        Process::start(&mut command)
    };
    for point in POINTS {
        // Six trips are requested for five new rooms and four new seats.
        let supply =
            "update hotel.hotel set rooms_left = rooms_left + 5; update flight.plane set seats_left = seats_left + 4";
        sqlx::raw_sql(supply).execute(&pool).await?;
        let mut services = [(FLIGHT, start(FLIGHT, Some(point))?, false), (HOTEL, start(HOTEL, Some(point))?, false)];
        for _ in 0..6 {
            steps::request_trip(&flight, Uuid::now_v7()).await.map_err(anyhow::Error::new)?;
        }
        let ended = async || {
            for (service, process, has_crashed) in &mut services {
                if !process.is_running() {
                    (*process, *has_crashed) = (start(*service, None)?, true);
                }
            }
            anyhow::Ok(services.iter().all(|(_, _, has_crashed)| *has_crashed) && all_ended(&pool).await?)
        };
        eventually(Duration::from_secs(60), ended).await?;
        let violated = audit(&pool).await?;
        ensure!(violated.is_empty(), "after a crash at {}: {}", point.as_str(), violated.join("; "));
        println!("{:30} both services crashed, and every trip ended: audit clean", point.as_str());
    }
    Ok(())
}

async fn all_ended(pool: &PgPool) -> anyhow::Result<bool> {
    let open = "select count(*) from saga.saga_instance where status not in ('COMPLETED', 'COMPENSATED')";
    let waiting = "select (select count(*) from flight.outbox) + (select count(*) from hotel.outbox)";
    let open: i64 = sqlx::query_scalar(open).fetch_one(pool).await?;
    let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(pool).await?;
    Ok(open + waiting == 0)
}
