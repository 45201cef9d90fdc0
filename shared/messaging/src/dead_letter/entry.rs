//! Queries for dead letters and the actions on them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::outbox::ids_before;

/// An event that a step could not apply, with the context of the failure.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DeadLetterBody))]
pub struct DeadLetter {
    #[serde(rename = "id")]
    pub dead_letter_id: Uuid,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub event_id: Option<Uuid>,
    pub event_type: String,
    pub subject: String,
    /// A string each, or a list of strings for a header with several values.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub headers: Value,
    /// The body as text; invalid UTF-8 is replaced.
    #[serde(serialize_with = "as_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub payload: Vec<u8>,
    /// The body, byte for byte.
    pub payload_base64: String,
    #[serde(skip)]
    pub consumer: String,
    pub step: String,
    /// `attempts exhausted`, `undecodable`, `unknown version`, `poison`.
    pub reason: String,
    pub error_chain: String,
    pub source_service: String,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub saga_id: Option<Uuid>,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub correlation_id: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub trace_id: Option<String>,
    pub attempts: i32,
    /// `PENDING`, `REPLAYED` (a replay is running), `RESOLVED` or `DISCARDED`.
    pub status: String,
    pub replay_count: i32,
    /// The outcome of the last action.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub notes: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

fn as_text<S: Serializer>(payload: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&String::from_utf8_lossy(payload))
}

/// Selects the dead letters that match all of these conditions; `{}` selects all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ReplayFilter))]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The step that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// With or without its version: `OrderCreated` or `OrderCreated.v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga_id: Option<Uuid>,
    /// The reason of the entry: `attempts exhausted`, `undecodable`, `unknown version`, `poison`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only older ones.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub created_before: Option<OffsetDateTime>,
}

/// Which dead letters to list; `None` does not filter.
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
    select(pool, filter, ids_before(filter.before)).await
}

pub async fn get(pool: &PgPool, dead_letter_id: Uuid) -> Result<Option<DeadLetter>, sqlx::Error> {
    let any = Filter { limit: 1, ..Filter::default() };
    Ok(select(pool, &any, dead_letter_id..=dead_letter_id).await?.pop())
}

async fn select(pool: &PgPool, filter: &Filter, ids: RangeInclusive<Uuid>) -> Result<Vec<DeadLetter>, sqlx::Error> {
    let Selection { step, event_type, saga_id, reason, created_before } = &filter.selection;
    sqlx::query_as!(
        DeadLetter,
        r#"select dead_letter_id, event_id, event_type, subject, headers as "headers: Value", payload,
            translate(encode(payload, 'base64'), e'\n', '') as "payload_base64!", consumer, step,
            reason, error_chain, source_service, saga_id, correlation_id, trace_id, attempts, status, replay_count,
            notes, created_at, updated_at
        from dead_letter
        where dead_letter_id between $1 and $2
            and ($3::text is null or status = $3)
            and ($4::text is null or step = $4)
            and ($5::text is null or event_type = $5 or starts_with(event_type, $5 || '.v'))
            and ($6::uuid is null or saga_id = $6)
            and ($7::text is null or reason = $7)
            and ($8::timestamptz is null or created_at < $8)
        order by dead_letter_id desc
        limit $9"#,
        ids.start(),
        ids.end(),
        filter.status.as_deref(),
        step.as_deref(),
        event_type.as_deref(),
        *saga_id,
        reason.as_deref(),
        *created_before,
        filter.limit,
    )
    .fetch_all(pool)
    .await
}

/// The selected entries that can be replayed, oldest first: pending or left behind by a crash, with a replay left.
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

/// The number of entries that an operator can still decide, and the ids of the oldest ones.
pub async fn undecided(pool: &PgPool, selection: &Selection, limit: i64) -> Result<(i64, Vec<Uuid>), sqlx::Error> {
    let found = sqlx::query!(
        r#"with found as materialized (
            select dead_letter_id
            from dead_letter
            where (status = 'PENDING' or (status = 'REPLAYED' and updated_at < now() - interval '2 minutes'))
                and ($1::text is null or step = $1)
                and ($2::text is null or event_type = $2 or starts_with(event_type, $2 || '.v'))
                and ($3::uuid is null or saga_id = $3)
                and ($4::text is null or reason = $4)
                and ($5::timestamptz is null or created_at < $5)
        )
        select (select count(*) from found) as "count!",
            array(select dead_letter_id from found order by dead_letter_id limit $6) as "ids!""#,
        selection.step.as_deref(),
        selection.event_type.as_deref(),
        selection.saga_id,
        selection.reason.as_deref(),
        selection.created_before,
        limit,
    )
    .fetch_one(pool)
    .await?;
    Ok((found.count, found.ids))
}

/// The number of entries that need an operator.
pub async fn count_pending(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from dead_letter where status = 'PENDING'"#)
        .fetch_one(pool)
        .await
}

/// One action on a dead letter.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DeadLetterAction))]
pub struct Action {
    #[serde(with = "time::serde::rfc3339")]
    pub acted_at: OffsetDateTime,
    pub actor: String,
    /// `replay`, `dry run` or `discard`.
    pub action: String,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub reason: Option<String>,
    pub outcome: String,
    /// The batch that it was part of.
    #[cfg_attr(feature = "openapi", schema(required = true))]
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

/// The actor of actions, the reason, and the batch.
#[derive(Debug, Clone)]
pub(super) struct By {
    pub(super) actor: String,
    pub(super) reason: Option<String>,
    pub(super) replay_id: Option<Uuid>,
}

/// Stores an action on each entry, with its outcome.
pub(super) async fn record_actions(
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
