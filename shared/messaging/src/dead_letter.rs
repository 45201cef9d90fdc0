//! Dead letters: events that a step could not apply, kept in the database with the whole context of
//! the failure. A replay goes to the failed step only, at most three times, and its outcome is
//! written on the entry; every action is kept with who, when and why.

mod replay;

use async_nats::HeaderMap;
use saga::{Service, Step};
use serde_json::{Map, Value};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    EnvelopeError, StepError, TraceContext,
    envelope::{self, CE_ID, CE_SAGAID, CE_TYPE},
    error::chain,
    subscription::RawEvent,
};

pub use replay::{ReplayError, ReplayOutcome, discard, replay};

/// Why an event became a dead letter.
#[derive(Debug)]
pub(crate) struct Failure {
    reason: &'static str,
    pub(crate) error_chain: String,
    pub(crate) attempts: i32,
}

impl Failure {
    pub(crate) fn unreadable(error: &EnvelopeError) -> Self {
        let reason = match error {
            EnvelopeError::UnknownVersion { .. } => "unknown version",
            _ => "undecodable",
        };
        Failure { reason, error_chain: chain(error), attempts: 1 }
    }

    pub(crate) fn of_step(error: &StepError, attempts: i32) -> Self {
        let reason = match error {
            StepError::Poison(_) => "poison",
            _ => "attempts exhausted",
        };
        Failure { reason, error_chain: chain(error), attempts: attempts.max(1) }
    }
}

/// Keeps the event. A redelivery of an event that is kept already changes nothing.
pub(crate) async fn write(
    pool: &PgPool,
    step: &Step,
    source: Service,
    raw: &RawEvent,
    failure: &Failure,
) -> Result<(), sqlx::Error> {
    // No text column takes a NUL; the headers as they were are in the JSON.
    let header = |name: &str| envelope::header(&raw.headers, name).map(|value| value.replace('\0', "\u{fffd}"));
    let trace_id = header("traceparent").and_then(|t| t.parse().ok()).map(TraceContext::trace_id);
    sqlx::query!(
        "insert into dead_letter
            (dead_letter_id, event_id, event_type, subject, headers, payload, consumer, step, reason, error_chain,
            source_service, saga_id, correlation_id, trace_id, attempts)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        on conflict (consumer, event_id) do nothing",
        Uuid::now_v7(),
        header(CE_ID).and_then(|id| id.parse::<Uuid>().ok()),
        header(CE_TYPE).unwrap_or_else(|| "unknown".to_owned()),
        raw.subject,
        headers_to_json(&raw.headers),
        raw.payload.as_ref(),
        step.consumer(),
        step.name,
        failure.reason,
        failure.error_chain,
        source.0,
        header(CE_SAGAID).and_then(|id| id.parse::<Uuid>().ok()),
        header("ce-correlationid"),
        trace_id,
        failure.attempts,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// A dead letter with everything that is known of it.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    pub dead_letter_id: Uuid,
    pub event_id: Option<Uuid>,
    pub event_type: String,
    pub subject: String,
    pub headers: Value,
    pub payload: Vec<u8>,
    pub consumer: String,
    pub step: String,
    pub reason: String,
    pub error_chain: String,
    pub source_service: String,
    pub saga_id: Option<Uuid>,
    pub correlation_id: Option<String>,
    pub trace_id: Option<String>,
    pub attempts: i32,
    pub status: String,
    pub replay_count: i32,
    pub notes: Option<String>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// Which dead letters to list; `None` does not restrict.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub status: Option<String>,
    pub step: Option<String>,
    pub event_type: Option<String>,
    pub saga_id: Option<Uuid>,
    /// Only those older than this one.
    pub before: Option<Uuid>,
    pub limit: i64,
}

/// Newest first.
pub async fn list(pool: &PgPool, filter: &Filter) -> Result<Vec<DeadLetter>, sqlx::Error> {
    sqlx::query_as!(
        DeadLetter,
        r#"select dead_letter_id, event_id, event_type, subject, headers as "headers: Value", payload, consumer, step,
            reason, error_chain, source_service, saga_id, correlation_id, trace_id, attempts, status, replay_count,
            notes, created_at, updated_at
        from dead_letter
        where ($1::text is null or status = $1)
            and ($2::text is null or step = $2)
            and ($3::text is null or event_type = $3 or event_type like $3 || '.v%')
            and ($4::uuid is null or saga_id = $4)
            and ($5::uuid is null or dead_letter_id < $5)
        order by dead_letter_id desc
        limit $6"#,
        filter.status,
        filter.step,
        filter.event_type,
        filter.saga_id,
        filter.before,
        filter.limit,
    )
    .fetch_all(pool)
    .await
}

pub async fn get(pool: &PgPool, dead_letter_id: Uuid) -> Result<Option<DeadLetter>, sqlx::Error> {
    sqlx::query_as!(
        DeadLetter,
        r#"select dead_letter_id, event_id, event_type, subject, headers as "headers: Value", payload, consumer, step,
            reason, error_chain, source_service, saga_id, correlation_id, trace_id, attempts, status, replay_count,
            notes, created_at, updated_at
        from dead_letter
        where dead_letter_id = $1"#,
        dead_letter_id,
    )
    .fetch_optional(pool)
    .await
}

/// How many wait for an operator.
pub async fn count_pending(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from dead_letter where status = 'PENDING'"#)
        .fetch_one(pool)
        .await
}

/// One thing that was done to a dead letter.
#[derive(Debug, Clone)]
pub struct Action {
    pub acted_at: OffsetDateTime,
    pub actor: String,
    pub action: String,
    pub reason: Option<String>,
    pub outcome: String,
}

pub async fn actions(pool: &PgPool, dead_letter_id: Uuid) -> Result<Vec<Action>, sqlx::Error> {
    sqlx::query_as!(
        Action,
        "select acted_at, actor, action, reason, outcome
        from dead_letter_action
        where dead_letter_id = $1
        order by acted_at",
        dead_letter_id,
    )
    .fetch_all(pool)
    .await
}

async fn note_action(
    conn: &mut PgConnection,
    dead_letter_id: Uuid,
    actor: &str,
    action: &str,
    reason: Option<&str>,
    outcome: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into dead_letter_action (dead_letter_id, actor, action, reason, outcome)
        values ($1, $2, $3, $4, $5)",
        dead_letter_id,
        actor,
        action,
        reason,
        outcome,
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn headers_to_json(headers: &HeaderMap) -> Value {
    let first = |values: &Vec<async_nats::HeaderValue>| {
        values.first().map_or(Value::Null, |v| Value::String(v.as_str().to_owned()))
    };
    Value::Object(headers.iter().map(|(name, values)| (name.to_string(), first(values))).collect::<Map<_, _>>())
}

fn headers_from_json(json: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in json.as_object().into_iter().flatten() {
        if let Value::String(text) = value {
            headers.insert(name.as_str(), text.as_str());
        }
    }
    headers
}
