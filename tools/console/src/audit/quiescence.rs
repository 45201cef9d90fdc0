//! Waits for what is in flight now: sagas that run or owe a step after their pivot, events that wait in an outbox, and events
//! that a consumer has not acknowledged. It does not wait for what begins later, because under load something always begins.
//!
//! Events move from a consumer to an outbox and from there to a stream. They are queried in this order, so that none is
//! missed; an event that follows from one of them belongs to a saga that was queried before.

use std::time::{Duration, Instant};

use async_nats::jetstream;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    AuditError, Verdict,
    acknowledged::{self, AckFloor},
    broker,
};

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What was in flight at one moment and has not ended since.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    sagas: Vec<(Uuid, String)>,
    /// With the service in whose outbox it waits.
    events: Vec<(Uuid, String)>,
    /// The floor that each consumer still has to reach.
    goals: Vec<AckFloor>,
}

/// Waits until everything that is in flight now has ended, at most `limit`. Returns what has not ended.
pub(super) async fn wait_until_quiescent(
    connection: &mut PgConnection,
    broker: &jetstream::Context,
    limit: Duration,
) -> Result<InFlight, AuditError> {
    let began = Instant::now();
    let mut in_flight = InFlight {
        sagas: running_sagas(connection, None).await?,
        events: pending_events(connection, None).await?,
        goals: goals(broker).await?,
    };
    while !in_flight.is_empty() && began.elapsed() < limit {
        tokio::time::sleep(POLL_INTERVAL).await;
        in_flight.sagas = running_sagas(connection, Some(&in_flight.sagas())).await?;
        in_flight.events = pending_events(connection, Some(&in_flight.events())).await?;
        let floors = acknowledged::ack_floors(broker).await?;
        in_flight.goals.retain(|goal| floors.iter().any(|floor| floor.is_behind(goal)));
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

    pub(super) fn verdict(&self, limit: Duration) -> Verdict {
        let limit = humantime::format_duration(limit);
        let sentence =
            format!("All work in flight ended within {limit}: sagas, events in outboxes, events to consume.");
        let sagas = self.sagas.iter().map(|(saga_id, state)| format!("saga {saga_id} is {state}"));
        let events =
            self.events.iter().map(|(event_id, service)| format!("event {event_id} waits in the outbox of {service}"));
        Verdict::new(
            "settled",
            sentence,
            sagas.chain(events).chain(self.goals.iter().map(AckFloor::describe_unreached)).collect(),
        )
    }
}

/// The sagas that run or owe a step after their pivot, with their status: all, or only these.
async fn running_sagas(connection: &mut PgConnection, of: Option<&[Uuid]>) -> sqlx::Result<Vec<(Uuid, String)>> {
    let query = sqlx::query_as(
        "select saga_id, status
        from saga.saga_instance
        where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING') and ($1 is null or saga_id = any($1))
        union all
        select saga_id, 'COMPLETED and owes a step of ' || array_to_string(receipts_due, ' and of ')
        from saga.saga_instance
        where status = 'COMPLETED' and receipts_due <> '{}' and ($1 is null or saga_id = any($1))",
    );
    query.bind(of).fetch_all(connection).await
}

/// The events that wait to be published: all, or only these. Parked events do not move by themselves; `outbox_empty` reports
/// them.
async fn pending_events(connection: &mut PgConnection, of: Option<&[Uuid]>) -> sqlx::Result<Vec<(Uuid, String)>> {
    let query = sqlx::query_as(
        "select event_id, service
        from audit.outbox
        where state = 'PENDING' and ($1 is null or event_id = any($1))",
    );
    query.bind(of).fetch_all(connection).await
}

/// For each consumer with unacknowledged events, the sequence of the last one.
async fn goals(broker: &jetstream::Context) -> Result<Vec<AckFloor>, AuditError> {
    let mut goals = Vec::new();
    for floor in acknowledged::ack_floors(broker).await? {
        let mut goal = floor.clone();
        goal.sequence = broker::last_sequence(broker, floor.stream, &floor.subject).await?;
        if floor.is_behind(&goal) {
            goals.push(goal);
        }
    }
    Ok(goals)
}
