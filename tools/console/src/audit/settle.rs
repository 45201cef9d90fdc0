//! Waiting for what is in flight now: sagas that run, events that wait in an outbox, and events that a consumer has not
//! had. Whatever begins later is not waited for, because under a load something always begins.
//!
//! Events move from a consumer to an outbox and from there to a stream. They are looked for in this order, so none slips
//! through; and what follows from one of them belongs to a saga that was looked for before.

use std::time::{Duration, Instant};

use async_nats::jetstream;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    AuditError, Verdict,
    acknowledged::{self, Floor},
    broker,
};

const PAUSE: Duration = Duration::from_millis(200);

/// What was in flight at one moment and has not ended since.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    sagas: Vec<(Uuid, String)>,
    /// With the service in whose outbox it waits.
    events: Vec<(Uuid, String)>,
    /// How far each consumer still has to come.
    goals: Vec<Floor>,
}

/// Waits until everything that is in flight now has ended, `limit` at most. Returns what has not.
pub(super) async fn settle(
    connection: &mut PgConnection,
    broker: &jetstream::Context,
    limit: Duration,
) -> Result<InFlight, AuditError> {
    let began = Instant::now();
    let mut in_flight = InFlight {
        sagas: running(connection, None).await?,
        events: waiting(connection, None).await?,
        goals: goals(broker).await?,
    };
    while !in_flight.is_empty() && began.elapsed() < limit {
        tokio::time::sleep(PAUSE).await;
        in_flight.sagas = running(connection, Some(&in_flight.sagas())).await?;
        in_flight.events = waiting(connection, Some(&in_flight.events())).await?;
        let floors = acknowledged::floors(broker).await?;
        in_flight.goals.retain(|goal| floors.iter().any(|floor| floor.is_short_of(goal)));
    }
    Ok(in_flight)
}

impl InFlight {
    fn is_empty(&self) -> bool {
        self.sagas.is_empty() && self.events.is_empty() && self.goals.is_empty()
    }

    pub(super) fn sagas(&self) -> Vec<Uuid> {
        self.sagas.iter().map(|(saga_id, _)| *saga_id).collect()
    }

    pub(super) fn events(&self) -> Vec<Uuid> {
        self.events.iter().map(|(event_id, _)| *event_id).collect()
    }

    /// Whatever is left is a violation.
    pub(super) fn verdict(&self, limit: Duration) -> Verdict {
        let sentence = format!(
            "Within {}, everything ended that was in flight: sagas, events in outboxes, and events on their way to consumers.",
            humantime::format_duration(limit)
        );
        let sagas = self.sagas.iter().map(|(saga_id, status)| format!("saga {saga_id} is {status}"));
        let events =
            self.events.iter().map(|(event_id, service)| format!("event {event_id} waits in the outbox of {service}"));
        Verdict::new("settled", sentence, sagas.chain(events).chain(self.goals.iter().map(Floor::missing)).collect())
    }
}

/// The sagas that run, all or of these.
async fn running(connection: &mut PgConnection, of: Option<&[Uuid]>) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    sqlx::query_as(
        "select saga_id, status
        from saga.saga_instance
        where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING') and ($1 is null or saga_id = any($1))",
    )
    .bind(of)
    .fetch_all(connection)
    .await
}

/// The events that wait to be published, all or of these. Parked events do not move by themselves, so nobody waits for
/// them here; `outbox_empty` tells.
async fn waiting(connection: &mut PgConnection, of: Option<&[Uuid]>) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    sqlx::query_as(
        "select event_id, service
        from audit.outbox
        where state = 'PENDING' and ($1 is null or event_id = any($1))",
    )
    .bind(of)
    .fetch_all(connection)
    .await
}

/// Of each consumer that has not had everything, the last event that is there for it.
async fn goals(broker: &jetstream::Context) -> Result<Vec<Floor>, AuditError> {
    let mut goals = Vec::new();
    for floor in acknowledged::floors(broker).await? {
        let mut goal = floor.clone();
        goal.sequence = broker::last_sequence(broker, floor.stream, &floor.subject).await?;
        if floor.is_short_of(&goal) {
            goals.push(goal);
        }
    }
    Ok(goals)
}
