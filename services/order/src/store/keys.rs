//! The idempotency keys of orders.

use sqlx::PgConnection;
use uuid::Uuid;

/// The key of a request, and the fingerprint of its body.
#[derive(Debug)]
pub(crate) struct KeyUse {
    pub(crate) customer_id: String,
    pub(crate) key: String,
    pub(crate) fingerprint: Vec<u8>,
}

/// A stored key's order and fingerprint.
#[derive(Debug)]
pub(crate) struct StoredKey {
    pub(crate) order_id: Uuid,
    pub(crate) fingerprint: Vec<u8>,
}

/// Tries to lock the keys for the rest of the transaction; returns for each whether it is locked: a concurrent request may hold
/// it.
pub(crate) async fn try_keys(conn: &mut PgConnection, keys: &[&KeyUse]) -> Result<Vec<bool>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select pg_try_advisory_xact_lock(hashtextextended(customer_id || chr(31) || key, 0)) as "held!"
        from unnest($1::text[], $2::text[]) with ordinality as t (customer_id, key, place)
        order by place"#,
        &keys.iter().map(|k| k.customer_id.clone()).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.key.clone()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await
}

/// For each key its stored order, if any.
pub(crate) async fn find_keys(
    conn: &mut PgConnection,
    keys: &[&KeyUse],
) -> Result<Vec<Option<StoredKey>>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select k.order_id as "order_id?", k.fingerprint as "fingerprint?"
        from unnest($1::text[], $2::text[]) with ordinality as t (customer_id, key, place)
        left join idempotency_key k using (customer_id, key)
        order by place"#,
        &keys.iter().map(|k| k.customer_id.clone()).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.key.clone()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    let stored = rows.into_iter().map(|row| Some(StoredKey { order_id: row.order_id?, fingerprint: row.fingerprint? }));
    Ok(stored.collect())
}

pub(crate) async fn insert_keys(conn: &mut PgConnection, keys: &[(&KeyUse, Uuid)]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into idempotency_key (customer_id, key, fingerprint, order_id)
        select customer_id, key, fingerprint, order_id
        from unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[]) as t (customer_id, key, fingerprint, order_id)",
        &keys.iter().map(|(k, _)| k.customer_id.clone()).collect::<Vec<_>>(),
        &keys.iter().map(|(k, _)| k.key.clone()).collect::<Vec<_>>(),
        &keys.iter().map(|(k, _)| k.fingerprint.clone()).collect::<Vec<_>>(),
        &keys.iter().map(|(_, order_id)| *order_id).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes a batch of keys older than `retention`; returns how many.
pub(crate) async fn delete_old_keys(
    conn: &mut PgConnection,
    retention: std::time::Duration,
    batch: i64,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "delete from idempotency_key
        where (customer_id, key) in (
            select customer_id, key from idempotency_key where created_at < now() - $1::interval limit $2
        )",
        messaging::interval(retention),
        batch,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
