//! Annotations, which every dashboard shows as named bands: scenarios and injected faults, with their time ranges.

use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

/// Begins the band of a scenario.
pub async fn begin_scenario(pool: &PgPool, annotation_id: Uuid, title: &str) -> Result<OffsetDateTime, sqlx::Error> {
    sqlx::query_scalar!(
        "insert into saga.annotation (annotation_id, kind, title)
        values ($1, 'scenario', $2)
        returning began_at",
        annotation_id,
        title,
    )
    .fetch_one(pool)
    .await
}

/// Ends the band of a scenario, once; returns when it ended. None when there is no such scenario.
pub async fn end_scenario(pool: &PgPool, annotation_id: Uuid) -> Result<Option<OffsetDateTime>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"update saga.annotation
        set ended_at = coalesce(ended_at, now())
        where annotation_id = $1 and kind = 'scenario'
        returning ended_at as "ended_at!""#,
        annotation_id,
    )
    .fetch_optional(pool)
    .await
}
