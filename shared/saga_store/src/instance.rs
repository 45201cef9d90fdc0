//! Sagas under their row locks: read once, changed in memory by the pure transitions, written back
//! in one statement, together with their journal.

mod count;

use std::{collections::HashMap, sync::Arc, time::Duration};

use messaging::{Context, StepError, UnitOfWork, interval};
use saga::{SagaDefinition, SagaState, Service, Status, Step, StepStatus, Transition};
use sqlx::PgConnection;
use uuid::Uuid;

use self::count::Written;

/// The first step of new sagas of one type.
#[derive(Debug)]
pub struct FirstStep<'a> {
    pub definition: &'static SagaDefinition,
    pub step: &'a Step,
    pub event_type: String,
    pub service: Service,
    pub deadline: Duration,
}

/// A saga to be started.
#[derive(Debug)]
pub struct NewSaga {
    pub saga_id: Uuid,
    /// The id of the business object that the saga is about; unique per type.
    pub business_key: Uuid,
    pub first_event_id: Uuid,
    pub context: Context,
}

/// Inserts the sagas, STARTED, and their first journal entries; counts nothing.
pub async fn insert(conn: &mut PgConnection, first: &FirstStep<'_>, sagas: &[NewSaga]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with begun as (
            insert into saga.saga_instance
                (saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step, total_steps,
                deadline, initiating_service, initiating_event_id, last_event_id, last_service, version, baggage,
                traceparent)
            select saga_id, $1, business_key, correlation_id, trace_id, 'STARTED', 0, $2, now() + $3, $4, event_id,
                event_id, $4, 1, baggage, traceparent
            from unnest($8::uuid[], $9::uuid[], $10::uuid[], $11::text[], $12::text[], $13::text[], $14::text[])
                as t (saga_id, business_key, event_id, correlation_id, trace_id, baggage, traceparent)
            returning saga_id, initiating_event_id, trace_id
        )
        insert into saga.saga_step
            (saga_id, position, step_number, step, service, direction, event_type, event_id, status,
            status_before, status_after, trace_id)
        -- An orchestrated saga has no event, and its own id instead.
        select saga_id, 1, $5, $6, $4, 'FORWARD', $7, nullif(initiating_event_id, saga_id), 'COMPLETED', 'STARTED',
            'STARTED', trace_id
        from begun",
        first.definition.saga_type,
        i16::from(first.definition.total_steps()),
        interval(first.deadline),
        first.service.0,
        i16::from(first.step.number),
        first.step.name,
        first.event_type,
        &sagas.iter().map(|s| s.saga_id).collect::<Vec<_>>(),
        &sagas.iter().map(|s| s.business_key).collect::<Vec<_>>(),
        &sagas.iter().map(|s| s.first_event_id).collect::<Vec<_>>(),
        &sagas.iter().map(|s| s.context.correlation_id.clone()).collect::<Vec<_>>(),
        &sagas.iter().map(|s| s.context.trace.trace_id()).collect::<Vec<_>>(),
        &sagas.iter().map(|s| s.context.baggage.as_deref().map(str::to_owned)).collect::<Vec<_>>()
            as &[Option<String>],
        &sagas.iter().map(|s| s.context.trace.to_string()).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A locked saga, with the changes that this transaction makes.
#[derive(Debug, Clone)]
struct SagaRow {
    saga_id: Uuid,
    state: SagaState,
    version: i32,
    compensation_attempts: i16,
    baggage: Option<Arc<str>>,
    changed: Option<Change>,
}

#[derive(Debug, Clone, Default)]
struct Change {
    /// A completed saga compensates.
    reopened: bool,
    last_event: Option<Uuid>,
    /// Set by the first failure, kept by all later ones.
    failure: Option<(String, &'static str)>,
    compensation_deadline: Option<Duration>,
}

/// The sagas of one transaction: those that it has locked, and those that it starts.
#[derive(Debug)]
pub struct Sagas {
    definition: &'static SagaDefinition,
    service: Service,
    rows: HashMap<Uuid, SagaRow>,
    journal: Vec<JournalEntry>,
    begun: Option<(FirstStep<'static>, Vec<NewSaga>)>,
}

/// What a step records of its saga, besides the event that it publishes.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) step: &'static Step,
    pub(crate) status: StepStatus,
    pub(crate) transition: Transition,
    pub(crate) event_type: String,
    pub(crate) reason: Option<String>,
}

#[derive(Debug)]
struct JournalEntry {
    saga_id: Uuid,
    position: i32,
    step_number: i16,
    step: &'static str,
    direction: &'static str,
    event_type: String,
    event_id: Option<Uuid>,
    status: &'static str,
    reason: Option<String>,
    before: Status,
    after: Status,
    trace_id: String,
    /// Whether the trace is sampled.
    sampled: bool,
}

impl Sagas {
    pub(crate) fn new(definition: &'static SagaDefinition, service: Service) -> Self {
        Sagas { definition, service, rows: HashMap::new(), journal: Vec::new(), begun: None }
    }

    /// Locks the sagas and reads their states. Unknown ids are skipped.
    pub(crate) async fn lock(
        &mut self,
        conn: &mut PgConnection,
        saga_ids: impl IntoIterator<Item = Uuid>,
    ) -> Result<(), StepError> {
        self.rows.extend(lock_rows(conn, saga_ids.into_iter().collect()).await?);
        Ok(())
    }

    /// Whether there is anything to save.
    pub(crate) fn has_anything(&self) -> bool {
        self.begun.is_some() || !self.journal.is_empty()
    }

    pub(crate) fn definition(&self) -> &'static SagaDefinition {
        self.definition
    }

    pub(crate) fn service(&self) -> Service {
        self.service
    }

    /// Starts the saga with this transaction.
    pub(crate) fn begin(&mut self, step: &'static Step, event_type: String, saga: NewSaga) {
        let SagaDefinition { deadline, .. } = *self.definition;
        let (definition, service) = (self.definition, self.service);
        let first = || FirstStep { definition, step, event_type, service, deadline };
        self.begun.get_or_insert_with(|| (first(), Vec::new())).1.push(saga);
    }

    /// The saga's state; none when there is no such saga (any more).
    pub(crate) fn state(&self, saga_id: Option<Uuid>) -> Option<&SagaState> {
        self.rows.get(&saga_id?).map(|row| &row.state)
    }

    pub(crate) fn compensation_attempts(&self, saga_id: Option<Uuid>) -> u16 {
        saga_id.and_then(|id| self.rows.get(&id)).map_or(0, |row| row.compensation_attempts.unsigned_abs())
    }

    pub(crate) fn status(&self, saga_id: Option<Uuid>) -> Option<Status> {
        self.state(saga_id).map(|state| state.status)
    }

    /// Whether a numbered step after the saga's pivot is done.
    pub(crate) fn is_past_pivot(&self, saga_id: Option<Uuid>) -> bool {
        let row = saga_id.and_then(|id| self.rows.get(&id));
        row.is_some_and(|row| row.state.past_pivot)
    }

    /// The baggage of the saga's first request.
    pub(crate) fn baggage(&self, saga_id: Uuid) -> Option<Arc<str>> {
        self.rows.get(&saga_id).and_then(|row| row.baggage.clone())
    }

    /// Applies the transition in memory, and journals it with the event that `publish` publishes, if any: both or, when
    /// either fails, neither. For a saga that was purged after its retention nothing is recorded.
    pub(crate) fn record(
        &mut self,
        context: &Context,
        recorded: Recorded,
        publish: impl FnOnce() -> Result<Option<Uuid>, StepError>,
    ) -> Result<(), StepError> {
        let Some(row) = context.saga_id().and_then(|id| self.rows.get_mut(&id)) else {
            return publish().map(drop);
        };
        let before = row.state.status;
        let after = self.definition.apply(&row.state, recorded.transition)?;
        let event_id = publish()?;
        row.state = after;
        row.version += 1;
        let change = row.changed.get_or_insert_default();
        change.last_event = event_id.or(change.last_event);
        change.reopened |= before == Status::Completed && row.state.status == Status::Compensating;
        // The first failure: a refusal, a timeout, or else the cancellation itself.
        if recorded.status == StepStatus::Failed || matches!(recorded.transition, Transition::Compensate { .. }) {
            let reason = recorded.reason.clone().unwrap_or_default();
            change.failure.get_or_insert((reason, recorded.step.name));
        }
        if recorded.transition == Transition::TimeOut {
            // The cancellation is normally triggered by the timeout's event; after this time it is done without.
            change.compensation_deadline = Some(self.definition.compensation.deadline / 4);
        }
        row.compensation_attempts = recorded.transition.attempts(row.compensation_attempts);
        if matches!(
            recorded.transition,
            Transition::Compensate { .. } | Transition::Resume | Transition::RetryCompensation
        ) {
            // Each attempt has twice the time of the one before.
            let doubled = 1u32.checked_shl(row.compensation_attempts.unsigned_abs().into()).unwrap_or(u32::MAX);
            change.compensation_deadline = Some(self.definition.compensation.deadline.saturating_mul(doubled));
        }
        let direction = if recorded.step.is_compensating() { "COMPENSATION" } else { "FORWARD" };
        self.journal.push(JournalEntry {
            saga_id: row.saga_id,
            position: row.version,
            step_number: i16::from(recorded.step.number),
            step: recorded.step.name,
            direction,
            event_type: recorded.event_type,
            event_id,
            status: recorded.status.as_str(),
            reason: recorded.reason,
            before,
            after: row.state.status,
            trace_id: context.trace.trace_id(),
            sampled: context.trace.is_sampled(),
        });
        Ok(())
    }

    /// Writes the new sagas, the changed ones and the journal.
    pub(crate) async fn save(self, work: &mut UnitOfWork) -> Result<(), StepError> {
        if let Some((first, sagas)) = &self.begun {
            insert(work.conn(), first, sagas).await?;
            let (definition, step, count) = (first.definition, first.step.name, sagas.len() as u64);
            work.after_commit(move |metrics| count::start(metrics, definition, step, count));
        }
        if self.journal.is_empty() {
            return Ok(());
        }
        let changed: Vec<(SagaRow, Change)> =
            self.rows.into_values().filter_map(|mut r| r.changed.take().map(|c| (r, c))).collect();
        let written = write_instances(work.conn(), self.service, &changed).await?;
        write_journal(work.conn(), self.service, &self.journal).await?;
        work.after_commit(move |metrics| count::journal(metrics, self.definition, &self.journal, &written));
        Ok(())
    }
}

/// Locks the rows in the order of their ids.
async fn lock_rows(conn: &mut PgConnection, mut ids: Vec<Uuid>) -> Result<HashMap<Uuid, SagaRow>, StepError> {
    ids.sort_unstable();
    ids.dedup();
    let found = sqlx::query!(
        "select saga_id, status, current_step, past_pivot, receipts_due, version, compensation_attempts, baggage
        from saga.saga_instance
        where saga_id = any($1)
        order by saga_id
        for update",
        &ids,
    )
    .fetch_all(conn)
    .await?;
    let mut rows = HashMap::with_capacity(found.len());
    for row in found {
        let state = SagaState {
            status: row.status.parse().map_err(StepError::failed)?,
            current_step: u8::try_from(row.current_step).unwrap_or(u8::MAX),
            past_pivot: row.past_pivot,
            receipts_due: row.receipts_due,
        };
        let saga = SagaRow {
            saga_id: row.saga_id,
            state,
            version: row.version,
            compensation_attempts: row.compensation_attempts,
            baggage: row.baggage.map(Arc::from),
            changed: None,
        };
        rows.insert(row.saga_id, saga);
    }
    Ok(rows)
}

async fn write_instances(
    conn: &mut PgConnection,
    service: Service,
    changed: &[(SagaRow, Change)],
) -> Result<HashMap<Uuid, Written>, StepError> {
    let column =
        |of: fn(&Change) -> Option<String>| -> Vec<Option<String>> { changed.iter().map(|(_, c)| of(c)).collect() };
    let written = sqlx::query_as!(
        Written,
        r#"update saga.saga_instance s
        set status = t.status, current_step = t.current_step, past_pivot = t.past_pivot, version = t.version,
            reopened = s.reopened or t.reopened,
            receipts_due = case when t.receipts_due = '' then '{}' else string_to_array(t.receipts_due, ',') end,
            completed_at = case
                when t.status not in ('COMPLETED', 'COMPENSATED', 'FAILED') then null
                when t.status = s.status then s.completed_at
                else clock_timestamp()
            end,
            failure_reason = coalesce(s.failure_reason, t.failure_reason),
            failed_at_step = case
                when s.status = 'COMPLETED' then coalesce(t.failed_at_step, s.failed_at_step)
                else coalesce(s.failed_at_step, t.failed_at_step)
            end,
            compensation_deadline = coalesce(now() + make_interval(secs => t.compensation_seconds), s.compensation_deadline),
            compensation_attempts = t.compensation_attempts,
            last_event_id = coalesce(t.last_event_id, s.last_event_id),
            last_service = case when t.last_event_id is null then s.last_service else $11 end,
            last_progress_at = clock_timestamp(),
            stall_nudged = false
        from unnest($1::uuid[], $2::text[], $3::smallint[], $4::integer[], $5::text[], $6::text[], $7::text[],
                $8::float8[], $9::smallint[], $10::uuid[], $12::boolean[], $13::boolean[])
            as t (saga_id, status, current_step, version, receipts_due, failure_reason, failed_at_step,
                compensation_seconds, compensation_attempts, last_event_id, past_pivot, reopened)
        where s.saga_id = t.saga_id
        returning s.saga_id, s.failed_at_step,
            extract(epoch from clock_timestamp() - s.started_at)::float8 as "since_start!",
            (select extract(epoch from clock_timestamp() - min(j.occurred_at))::float8
                from saga.saga_step j
                where s.status = 'COMPENSATED' and j.saga_id = s.saga_id and j.status_after = 'COMPENSATING'
            ) as compensated_in,
            exists (select from saga.saga_step j
                where s.status = 'COMPENSATED' and j.saga_id = s.saga_id and j.status_before = 'COMPLETED'
            ) as "reopened!""#,
        &changed.iter().map(|(r, _)| r.saga_id).collect::<Vec<_>>(),
        &changed.iter().map(|(r, _)| r.state.status.to_string()).collect::<Vec<_>>(),
        &changed.iter().map(|(r, _)| i16::from(r.state.current_step)).collect::<Vec<_>>(),
        &changed.iter().map(|(r, _)| r.version).collect::<Vec<_>>(),
        &changed.iter().map(|(r, _)| r.state.receipts_due.join(",")).collect::<Vec<_>>(),
        &column(|c| c.failure.as_ref().map(|(reason, _)| reason.clone())) as &[Option<String>],
        &column(|c| c.failure.as_ref().map(|(_, step)| (*step).to_owned())) as &[Option<String>],
        &changed.iter().map(|(_, c)| c.compensation_deadline.map(|d| d.as_secs_f64())).collect::<Vec<_>>()
            as &[Option<f64>],
        &changed.iter().map(|(r, _)| r.compensation_attempts).collect::<Vec<_>>(),
        &changed.iter().map(|(_, c)| c.last_event).collect::<Vec<_>>() as &[Option<Uuid>],
        service.0,
        &changed.iter().map(|(r, _)| r.state.past_pivot).collect::<Vec<_>>(),
        &changed.iter().map(|(_, c)| c.reopened).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    if written.len() != changed.len() {
        return Err(StepError::failed(format!("{} sagas were locked and {} written", changed.len(), written.len())));
    }
    Ok(written.into_iter().map(|saga| (saga.saga_id, saga)).collect())
}

async fn write_journal(conn: &mut PgConnection, service: Service, journal: &[JournalEntry]) -> Result<(), StepError> {
    let column = |of: fn(&JournalEntry) -> &str| -> Vec<String> { journal.iter().map(|e| of(e).to_owned()).collect() };
    sqlx::query!(
        "insert into saga.saga_step
            (saga_id, position, step_number, step, service, direction, event_type, event_id, status, reason,
            status_before, status_after, trace_id, fault)
        select saga_id, position, step_number, step, $12, direction, event_type, event_id, status, reason,
            status_before, status_after, trace_id, (
                select string_agg(distinct format('%s at %s', h.kind, h.point), ', ')
                from saga.fault_hit h
                where h.saga_id = t.saga_id
                    and h.hit_at > (select max(s.occurred_at) from saga.saga_step s where s.saga_id = t.saga_id)
            )
        from unnest($1::uuid[], $2::integer[], $3::smallint[], $4::text[], $5::text[], $6::text[], $7::uuid[],
                $8::text[], $9::text[], $10::text[], $11::text[], $13::text[])
            as t (saga_id, position, step_number, step, direction, event_type, event_id, status, reason,
                status_before, status_after, trace_id)",
        &journal.iter().map(|e| e.saga_id).collect::<Vec<_>>(),
        &journal.iter().map(|e| e.position).collect::<Vec<_>>(),
        &journal.iter().map(|e| e.step_number).collect::<Vec<_>>(),
        &column(|e| e.step),
        &column(|e| e.direction),
        &column(|e| &e.event_type),
        &journal.iter().map(|e| e.event_id).collect::<Vec<_>>() as &[Option<Uuid>],
        &column(|e| e.status),
        &journal.iter().map(|e| e.reason.clone()).collect::<Vec<_>>() as &[Option<String>],
        &column(|e| e.before.as_str()),
        &column(|e| e.after.as_str()),
        service.0,
        &column(|e| &e.trace_id),
    )
    .execute(conn)
    .await?;
    Ok(())
}
