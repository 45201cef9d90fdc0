//! The entries as one looks at them: which there are, what is known of each, and what was done to it.

use serde::Serialize;
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

/// A dead letter with everything that is known of it.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    pub dead_letter_id: Uuid,
    pub event_id: Option<Uuid>,
    pub event_type: String,
    pub subject: String,
    pub headers: Value,
    pub payload: Vec<u8>,
    pub payload_base64: String,
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

/// Which dead letters are meant; `None` does not restrict.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Selection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// With or without its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga_id: Option<Uuid>,
    /// In the words of the entry: `attempts exhausted`, `undecodable`, `unknown version`, `poison`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub created_before: Option<OffsetDateTime>,
}

/// Which dead letters to list; `None` does not restrict.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub status: Option<String>,
    pub selection: Selection,
    /// Only those older than this one.
    pub before: Option<Uuid>,
    pub limit: i64,
}

/// Newest first.
pub async fn list(pool: &PgPool, filter: &Filter) -> Result<Vec<DeadLetter>, sqlx::Error> {
    let Selection { step, event_type, saga_id, reason, created_before } = &filter.selection;
    sqlx::query_as!(
        DeadLetter,
        r#"select dead_letter_id, event_id, event_type, subject, headers as "headers: Value", payload,
            translate(encode(payload, 'base64'), e'\n', '') as "payload_base64!", consumer, step,
            reason, error_chain, source_service, saga_id, correlation_id, trace_id, attempts, status, replay_count,
            notes, created_at, updated_at
        from dead_letter
        where ($1::text is null or status = $1)
            and ($2::text is null or step = $2)
            and ($3::text is null or event_type = $3 or starts_with(event_type, $3 || '.v'))
            and ($4::uuid is null or saga_id = $4)
            and ($5::text is null or reason = $5)
            and ($6::timestamptz is null or created_at < $6)
            and ($7::uuid is null or dead_letter_id < $7)
        order by dead_letter_id desc
        limit $8"#,
        filter.status.as_deref(),
        step.as_deref(),
        event_type.as_deref(),
        *saga_id,
        reason.as_deref(),
        *created_before,
        filter.before,
        filter.limit,
    )
    .fetch_all(pool)
    .await
}

pub async fn get(pool: &PgPool, dead_letter_id: Uuid) -> Result<Option<DeadLetter>, sqlx::Error> {
    sqlx::query_as!(
        DeadLetter,
        r#"select dead_letter_id, event_id, event_type, subject, headers as "headers: Value", payload,
            translate(encode(payload, 'base64'), e'\n', '') as "payload_base64!", consumer, step,
            reason, error_chain, source_service, saga_id, correlation_id, trace_id, attempts, status, replay_count,
            notes, created_at, updated_at
        from dead_letter
        where dead_letter_id = $1"#,
        dead_letter_id,
    )
    .fetch_optional(pool)
    .await
}

/// Those of the selection that can be replayed, oldest first: they wait, or were left behind by a crash, and have a
/// replay left.
pub(super) async fn replayable(
    pool: &PgPool,
    selection: &Selection,
    limit: i64,
    replayed_less_than: i32,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "select dead_letter_id
        from dead_letter
        where (status = 'PENDING' or (status = 'REPLAYED' and updated_at < now() - interval '2 minutes'))
            and replay_count < $1
            and ($2::text is null or step = $2)
            and ($3::text is null or event_type = $3 or starts_with(event_type, $3 || '.v'))
            and ($4::uuid is null or saga_id = $4)
            and ($5::text is null or reason = $5)
            and ($6::timestamptz is null or created_at < $6)
        order by dead_letter_id
        limit $7",
        replayed_less_than,
        selection.step.as_deref(),
        selection.event_type.as_deref(),
        selection.saga_id,
        selection.reason.as_deref(),
        selection.created_before,
        limit,
    )
    .fetch_all(pool)
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
    /// The batch that it was part of.
    pub replay_id: Option<Uuid>,
}

pub async fn actions(pool: &PgPool, dead_letter_id: Uuid) -> Result<Vec<Action>, sqlx::Error> {
    sqlx::query_as!(
        Action,
        "select acted_at, actor, action, reason, outcome, replay_id
        from dead_letter_action
        where dead_letter_id = $1
        order by action_id",
        dead_letter_id,
    )
    .fetch_all(pool)
    .await
}

/// Who acts on entries, why, and in which batch.
#[derive(Debug, Clone)]
pub(super) struct By {
    pub(super) actor: String,
    pub(super) reason: Option<String>,
    pub(super) replay_id: Option<Uuid>,
}

/// Keeps what was done, one outcome for each entry.
pub(super) async fn note(
    conn: &mut PgConnection,
    by: &By,
    action: &str,
    outcomes: impl IntoIterator<Item = (Uuid, String)>,
) -> Result<(), sqlx::Error> {
    let (entries, outcomes): (Vec<Uuid>, Vec<String>) = outcomes.into_iter().unzip();
    sqlx::query!(
        "insert into dead_letter_action (dead_letter_id, actor, action, reason, outcome, replay_id)
        select t.dead_letter_id, $1, $2, $3, t.outcome, $4
        from unnest($5::uuid[], $6::text[]) as t (dead_letter_id, outcome)
        join dead_letter using (dead_letter_id)",
        by.actor,
        action,
        by.reason,
        by.replay_id,
        &entries,
        &outcomes,
    )
    .execute(conn)
    .await?;
    Ok(())
}
