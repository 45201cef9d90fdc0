//! One read-only snapshot of the database: all SQL invariants, payment's ledger and the publish acknowledgements are read at the
//! same moment.

use futures_util::TryStreamExt;
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use super::{
    AuditError, Options, Totals, Verdict,
    gateway::{self, Gateway},
    invariant::{Invariant, Violations, invariants},
    quiescence::InFlight,
    streams::{self, Published},
};

pub(super) struct Snapshot {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) published: Vec<Published>,
    pub(super) totals: Totals,
}

/// Invariants about work that waits for a program or an operator. If it waits too long, `no_saga_stuck` is violated; the
/// catalogue has no saga, and order compares it itself.
const WAITING: [&str; 3] = ["outbox_empty", "dead_letters", "catalogue_agrees"];

/// A connection that cannot write and whose statements time out.
pub(crate) async fn connect(database_url: &str) -> Result<PgConnection, AuditError> {
    let options: PgConnectOptions = database_url.parse()?;
    let limits = [("statement_timeout", "120000"), ("lock_timeout", "10000"), ("default_transaction_read_only", "on")];
    Ok(PgConnection::connect_with(&options.application_name("auditor").options(limits)).await?)
}

/// Checks all SQL invariants, compares payment's ledger with the gateway's, and reads what the other checks need.
pub(super) async fn take(
    connection: &mut PgConnection,
    gateway: &Gateway,
    unsettled: &InFlight,
    options: &Options,
) -> Result<Snapshot, AuditError> {
    let mut snapshot = connection.begin_with("begin isolation level repeatable read read only").await?;
    let in_flight = leave_out_in_flight(&mut snapshot, &unsettled.sagas()).await?;
    sqlx::query("select set_config('audit.unsettled', array_to_string($1::uuid[], ','), true)")
        .bind(unsettled.events())
        .execute(&mut *snapshot)
        .await?;
    let left_out: Vec<String> = in_flight.iter().map(|order_id| format!("order {order_id} is in flight")).collect();
    let mut verdicts = Vec::new();
    for invariant in invariants().iter().filter(|i| !options.at_work || !WAITING.contains(&i.name)) {
        let found = check(&mut snapshot, invariant).await?;
        let verdict = Verdict::new(invariant.name, invariant.sentence(), found);
        verdicts.push(if invariant.leaves_out() { verdict.without(&left_out) } else { verdict });
    }
    verdicts.extend(gateway::compare(&mut snapshot, gateway, &in_flight, &left_out, options).await?);
    let published = streams::published(&mut snapshot, options).await?;
    let totals = totals(&mut snapshot).await?;
    snapshot.commit().await?;
    Ok(Snapshot { verdicts, published, totals })
}

async fn totals(connection: &mut PgConnection) -> sqlx::Result<Totals> {
    let orders = sqlx::query_scalar("select count(*) from orders.customer_order").fetch_one(&mut *connection).await?;
    let compensating =
        sqlx::query_scalar("select count(*) from saga.saga_instance where status in ('TIMED_OUT', 'COMPENSATING')")
            .fetch_one(&mut *connection)
            .await?;
    let kept = sqlx::query_as::<_, (String, i64)>(
        "select currency, sum(amount)::bigint from payment.payment where status = 'CAPTURED' group by currency",
    );
    let kept = kept.fetch_all(connection).await?.into_iter().collect();
    Ok(Totals { orders, kept, compensating })
}

/// Sets, for the rest of the transaction, which orders the invariants treat as in flight: those whose sagas run, except the
/// `unsettled` sagas, which should have ended. Returns the orders.
pub async fn leave_out_in_flight(connection: &mut PgConnection, unsettled: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
    let query = sqlx::query_scalar(
        "with in_flight as (
            select coalesce(array_agg(business_key), '{}') as orders
            from saga.saga_instance
            where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING') and saga_id <> all($1)
        )
        select orders
        from in_flight
        where set_config('audit.in_flight', array_to_string(orders, ','), true) is not null",
    );
    query.bind(unsettled).fetch_one(connection).await
}

/// The violations of one invariant, as the connection's transaction sees the database.
pub async fn check(connection: &mut PgConnection, invariant: &Invariant) -> sqlx::Result<Violations> {
    let mut rows = sqlx::query_scalar::<_, String>(invariant.sql).fetch(connection);
    let mut found = Violations::default();
    while let Some(violation) = rows.try_next().await? {
        found.add(violation);
    }
    Ok(found)
}
