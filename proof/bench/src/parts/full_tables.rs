//! Throughput with a million published events and a million ended sagas in the tables, against empty ones.

use sqlx::PgConnection;

use crate::{figure::Figure, stage::Stage};

/// Sagas that nobody knows, of a type of their own, so that they can be taken away again. Their triggers would refuse
/// a saga that does not begin at its beginning.
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
from generate_series(1, ROWS) as n;
insert into saga.saga_instance
    (saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step, total_steps, deadline,
    completed_at, initiating_service, initiating_event_id, last_event_id, last_service, version)
select pg_temp.id(), 'Seed', pg_temp.id(), md5(n::text), md5(n::text), 'COMPLETED', 3, 4, now() + interval '60 s',
    now(), 'order', pg_temp.id(), pg_temp.id(), 'order', 1
from generate_series(1, ROWS) as n;
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

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let rows = if stage.quick { 20_000 } else { 1_000_000 };
    // As long as `saturated`: a vacuum and a checkpoint come in each.
    let (warm_up, time) = (stage.time(5, 2), stage.time(60, 4));
    let empty = stage.saturate(warm_up, time, &[]).await?.ended_per_second;
    let mut connection = stage.superuser().await?;
    run(&mut connection, &SEED.replace("ROWS", &rows.to_string())).await?;
    let full = stage.saturate(warm_up, time, &[]).await?.ended_per_second;
    // The audit would rightly miss the orders of all these sagas.
    run(&mut connection, AWAY).await?;
    Ok(vec![
        Figure::new("sagas, into empty tables", empty, "1/s"),
        Figure::new(format!("sagas, with {rows} of each"), full, "1/s"),
        Figure::new("full / empty", full / empty, "").at_least(0.9),
    ])
}

/// The server's own cleaning up afterwards is not what is measured.
async fn run(connection: &mut PgConnection, sql: &str) -> anyhow::Result<()> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *connection).await?;
    for statement in [
        "vacuum analyze saga.saga_instance",
        "vacuum analyze saga.saga_step",
        "vacuum analyze orders.outbox_published",
        "checkpoint",
    ] {
        sqlx::raw_sql(statement).execute(&mut *connection).await?;
    }
    Ok(())
}
