//! Throughput with ten million published events and a million ended sagas in the tables, compared with empty tables.

use super::{by_turns, ensure_clean, ratio};
use crate::{figure::Figure, suite::MeasuredSuite};

/// Sagas of a separate type, so that they can be deleted afterwards. The triggers are off, because they would refuse a saga that
/// is inserted in its final state.
const SEED: &str = "
set session_replication_role = replica;
create function pg_temp.id() returns uuid language sql volatile as $$
    select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
        || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid
$$;
insert into orders.outbox_published
    (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, saga_id,
    created_at, stream, stream_sequence, stream_epoch, relay)
select pg_temp.id(), -n, 'order', n, 1, 'OrderConfirmed.v1', 'events.order.OrderConfirmed',
    json_build_object('ce-source', '/services/order', 'padding', repeat('x', 300)),
    json_build_object('order_id', n, 'padding', repeat('x', 200)), pg_temp.id(), now(), 'SEED', n, 0, 'seed'
from generate_series(1, EVENTS) as n;
insert into saga.saga_instance
    (saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step, total_steps, deadline,
    completed_at, initiating_service, initiating_event_id, last_event_id, last_service, version)
select pg_temp.id(), 'Seed', pg_temp.id(), md5(n::text), md5(n::text), 'COMPLETED', 3, 4, now() + interval '60 s',
    now(), 'order', pg_temp.id(), pg_temp.id(), 'order', 1
from generate_series(1, SAGAS) as n;
insert into saga.saga_step
    (saga_id, position, step_number, step, service, direction, event_type, status, status_before, status_after)
select saga_id, 1, 0, 'create_order', 'order', 'FORWARD', 'OrderCreated.v1', 'COMPLETED', 'STARTED', 'COMPLETED'
from saga.saga_instance where saga_type = 'Seed';
set session_replication_role = default";

const AWAY: &str = "
set session_replication_role = replica;
delete from saga.saga_step where saga_id in (select saga_id from saga.saga_instance where saga_type = 'Seed');
delete from saga.saga_instance where saga_type = 'Seed';
delete from orders.outbox_published where relay = 'seed';
set session_replication_role = default";

pub(super) async fn measure(empty: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let sagas = if empty.quick { 20_000 } else { 1_000_000 };
    let events = 10 * sagas;
    let full = empty.beside("full");
    full.fresh_suite().await?;
    let mut connection = full.superuser().await?;
    let seed = SEED.replace("EVENTS", &events.to_string()).replace("SAGAS", &sagas.to_string());
    sqlx::raw_sql(sqlx::AssertSqlSafe(seed)).execute(&mut connection).await?;
    // Here, so that they do not disturb the measurement.
    for statement in [
        "vacuum analyze saga.saga_instance",
        "vacuum analyze saga.saga_step",
        "vacuum analyze orders.outbox_published",
        "checkpoint",
    ] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    sqlx::raw_sql("checkpoint").execute(&mut empty.superuser().await?).await?;
    let _scraper = full.scraper().await?;
    let full_name = format!("with {events} events and {sagas} sagas");
    let by_turns = by_turns(empty.rounds(10), ["into empty tables", &full_name], async |variant| {
        [empty, &full][variant].a_turn(&[]).await
    });
    let (measured, mut figures) = by_turns.await?;
    // The audit would report that these sagas have no orders.
    sqlx::raw_sql(AWAY).execute(&mut connection).await?;
    ensure_clean(&full, "full tables").await?;
    figures.push(ratio("full / empty", &measured[1], &measured[0]).at_least(0.95));
    Ok(figures)
}
