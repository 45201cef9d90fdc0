//! The lists of the desk. Each page reads at most some thousand rows along an index, so it costs the same among a million sagas.

use serde::Serialize;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

/// Orders on a page.
pub(crate) const PAGE: i64 = 50;
/// The most sagas read for one page, however few of them match.
const WALK: i64 = 5_000;

/// An order in a list.
#[derive(Debug, Serialize, sqlx::FromRow)]
pub(crate) struct Row {
    pub(crate) order_id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) customer_id: String,
    pub(crate) order_status: String,
    pub(crate) total_amount: i64,
    pub(crate) currency: String,
    pub(crate) saga_status: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) started_at: OffsetDateTime,
    pub(crate) ms: Option<i64>,
    pub(crate) failed_at_step: Option<String>,
}

/// Which orders to list; `None` does not restrict. With a name or an id, the others do not count.
#[derive(Debug, Default)]
pub(crate) struct Filter<'a> {
    pub(crate) id: Option<Uuid>,
    /// A customer, or the correlation id of the request that placed the order.
    pub(crate) name: Option<&'a str>,
    pub(crate) saga_status: Option<&'a str>,
    pub(crate) failed_at_step: Option<&'a str>,
    /// Only sagas that began at least this many seconds ago.
    pub(crate) older_than: Option<f64>,
    /// Where the page begins: the saga that ended the page before, or of a customer the order.
    pub(crate) before: Option<Uuid>,
}

/// A page of orders, newest first, and the key where the next one begins.
pub(crate) struct Found {
    pub(crate) rows: Vec<Row>,
    pub(crate) next: Option<Uuid>,
}

const COLUMNS: &str = "o.order_id, o.saga_id, o.customer_id, o.status as order_status, o.total_amount, o.currency,
    s.status as saga_status, o.created_at as started_at,
    (extract(epoch from s.completed_at - s.started_at) * 1000)::bigint as ms, s.failed_at_step";

pub(crate) async fn find(pool: &PgPool, filter: &Filter<'_>) -> sqlx::Result<Found> {
    let Filter { id, name, before, .. } = filter;
    if let Some(id) = id {
        let rows = by_id(pool, *id).await?;
        // A name may have the form of one.
        if !rows.is_empty() || name.is_none() {
            return Ok(Found { rows, next: None });
        }
    }
    let Some(name) = name else { return walk(pool, filter).await };
    // The saga of an old order may be purged, so a customer's page ends at an order.
    let found = whole_page(of_customer(pool, name, *before).await?, |row| row.order_id);
    if !found.rows.is_empty() {
        return Ok(found);
    }
    Ok(whole_page(of_correlation(pool, name, *before).await?, |row| row.saga_id))
}

/// A next page may follow a full one.
fn whole_page(rows: Vec<Row>, key: fn(&Row) -> Uuid) -> Found {
    let next = rows.last().filter(|_| rows.len() >= usize::try_from(PAGE).unwrap_or(0)).map(key);
    Found { rows, next }
}

/// The order with this id, or of the saga with this id.
async fn by_id(pool: &PgPool, id: Uuid) -> sqlx::Result<Vec<Row>> {
    let sql = format!(
        "select {COLUMNS}
        from orders.customer_order o
        left join saga.saga_instance s on s.saga_id = o.saga_id
        where o.order_id in (select $1 union select business_key from saga.saga_instance where saga_id = $1)"
    );
    sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id).fetch_all(pool).await
}

async fn of_customer(pool: &PgPool, customer: &str, before: Option<Uuid>) -> sqlx::Result<Vec<Row>> {
    let sql = format!(
        "select {COLUMNS}
        from orders.customer_order o
        left join saga.saga_instance s on s.saga_id = o.saga_id
        where o.customer_id = $1
            and o.order_id < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by o.order_id desc
        limit $3"
    );
    sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(customer).bind(before).bind(PAGE).fetch_all(pool).await
}

async fn of_correlation(pool: &PgPool, correlation_id: &str, before: Option<Uuid>) -> sqlx::Result<Vec<Row>> {
    let sql = format!(
        "select {COLUMNS}
        from saga.saga_instance s
        join orders.customer_order o on o.order_id = s.business_key
        where s.correlation_id = $1
            and s.saga_id < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by s.saga_id desc
        limit $3"
    );
    sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(correlation_id).bind(before).bind(PAGE).fetch_all(pool).await
}

/// Sagas that run or have failed have indexes of their own; the others are read along their key, newest first.
async fn walk(pool: &PgPool, filter: &Filter<'_>) -> sqlx::Result<Found> {
    const OPEN: [&str; 5] = ["STARTED", "IN_PROGRESS", "TIMED_OUT", "COMPENSATING", "FAILED"];
    let Filter { saga_status, failed_at_step, older_than, before, .. } = filter;
    let mut before = before.unwrap_or(Uuid::max());
    if let Some(seconds) = older_than {
        before = before.min(key_of_age(pool, *seconds).await?);
    }
    let is_open = saga_status.is_some_and(|status| OPEN.contains(&status));
    let source = if is_open {
        "(select * from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')
        union all
        select * from saga.saga_instance where status in ('TIMED_OUT', 'COMPENSATING', 'FAILED'))"
    } else {
        "(select * from saga.saga_instance where saga_id < $1 order by saga_id desc limit $5)"
    };
    let sql = format!(
        "select {COLUMNS}
        from {source} s
        join orders.customer_order o on o.order_id = s.business_key
        where s.saga_id < $1
            and ($2::text is null or s.status = $2)
            and ($3::text is null or s.failed_at_step = $3)
            and ($6::float8 is null or s.started_at < now() - make_interval(secs => $6))
            and $5::bigint > 0
        order by s.saga_id desc
        limit $4"
    );
    let query = sqlx::query_as(sqlx::AssertSqlSafe(sql));
    let rows: Vec<Row> = query
        .bind(before)
        .bind(saga_status)
        .bind(failed_at_step)
        .bind(PAGE)
        .bind(WALK)
        .bind(older_than)
        .fetch_all(pool)
        .await?;
    let next = match rows.last() {
        Some(last) if rows.len() >= usize::try_from(PAGE).unwrap_or(0) => Some(last.saga_id),
        // All open ones were read.
        _ if is_open => None,
        _ => walked_to(pool, before).await?,
    };
    Ok(Found { rows, next })
}

/// The first key of a saga that would begin now less so many seconds: keys are UUIDv7.
async fn key_of_age(pool: &PgPool, seconds: f64) -> sqlx::Result<Uuid> {
    let query = sqlx::query_scalar(
        "select (lpad(to_hex((extract(epoch from now() - make_interval(secs => $1)) * 1000)::bigint), 12, '0')
            || repeat('0', 20))::uuid",
    );
    query.bind(seconds).fetch_one(pool).await
}

/// The last saga of a walk that was cut short.
async fn walked_to(pool: &PgPool, before: Uuid) -> sqlx::Result<Option<Uuid>> {
    let query = sqlx::query_scalar(
        "select saga_id from saga.saga_instance where saga_id < $1 order by saga_id desc offset $2 limit 1",
    );
    query.bind(before).bind(WALK - 1).fetch_optional(pool).await
}

/// A saga that makes no progress.
#[derive(Debug, Serialize, sqlx::FromRow)]
pub(crate) struct Stuck {
    pub(crate) order_id: Uuid,
    pub(crate) status: String,
    #[serde(rename = "seconds_without_progress")]
    pub(crate) seconds: f64,
    /// Which order knows; `None` when it does not answer.
    #[sqlx(skip)]
    pub(crate) cause: Option<String>,
}

/// The sagas without progress for so many seconds, and the FAILED ones, longest first.
pub(crate) async fn stuck(pool: &PgPool, seconds: f64, limit: i64) -> sqlx::Result<Vec<Stuck>> {
    let query = sqlx::query_as(
        "select business_key as order_id, status, extract(epoch from now() - last_progress_at)::float8 as seconds
        from (
            select business_key, status, last_progress_at from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')
            union all
            select business_key, status, last_progress_at from saga.saga_instance
            where status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
        ) open
        where status = 'FAILED' or last_progress_at < now() - make_interval(secs => $1)
        order by last_progress_at
        limit $2",
    );
    query.bind(seconds).bind(limit).fetch_all(pool).await
}

/// How many dead letters wait for a decision, and how many events are parked, in each service that has any.
#[derive(Debug, Serialize, sqlx::FromRow)]
pub(crate) struct Waiting {
    pub(crate) service: String,
    pub(crate) dead_letters: i64,
    pub(crate) parked: i64,
}

pub(crate) async fn waiting(pool: &PgPool) -> sqlx::Result<Vec<Waiting>> {
    let query = sqlx::query_as(
        "select service, sum(dead_letters)::bigint as dead_letters, sum(parked)::bigint as parked
        from (
            select service, 1 as dead_letters, 0 as parked from audit.dead_letter where status = 'PENDING'
            union all
            select service, 0, 1 from audit.outbox where state = 'PARKED'
        ) waiting
        group by service
        order by service",
    );
    query.fetch_all(pool).await
}

/// How many actions are listed.
pub(crate) const ACTIONS: i64 = 100;

/// What an operator did.
#[derive(Debug, Serialize, sqlx::FromRow)]
pub(crate) struct Action {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) acted_at: OffsetDateTime,
    pub(crate) actor: String,
    pub(crate) service: String,
    pub(crate) action: String,
    pub(crate) reason: Option<String>,
    pub(crate) status: Option<i16>,
}

pub(crate) async fn actions(pool: &PgPool) -> sqlx::Result<Vec<Action>> {
    let query = sqlx::query_as(
        "select acted_at, actor, service, action, reason, status from saga.operator_action order by action_id desc limit $1",
    );
    query.bind(ACTIONS).fetch_all(pool).await
}
