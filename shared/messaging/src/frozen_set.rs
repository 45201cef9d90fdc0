//! The sets of entries that dry runs have selected. Stored, so that the action that follows concerns exactly these, and so that its
//! request is short.

use sqlx::PgPool;
use uuid::Uuid;

/// What the entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Outbox,
    DeadLetters,
}

impl Of {
    const fn as_str(self) -> &'static str {
        match self {
            Of::Outbox => "OUTBOX",
            Of::DeadLetters => "DEAD_LETTERS",
        }
    }
}

/// Stores the set; returns its id.
pub async fn freeze(pool: &PgPool, of: Of, actor: &str, ids: &[Uuid]) -> Result<Uuid, sqlx::Error> {
    let set_id = Uuid::now_v7();
    sqlx::query!(
        "insert into frozen_set (set_id, selected_of, selected_by, ids) values ($1, $2, $3, $4)",
        set_id,
        of.as_str(),
        actor,
        ids,
    )
    .execute(pool)
    .await?;
    Ok(set_id)
}

/// The entries of this set, if there is one.
pub async fn frozen(pool: &PgPool, of: Of, set_id: Uuid) -> Result<Option<Vec<Uuid>>, sqlx::Error> {
    let set =
        sqlx::query_scalar!("select ids from frozen_set where set_id = $1 and selected_of = $2", set_id, of.as_str());
    set.fetch_optional(pool).await
}
