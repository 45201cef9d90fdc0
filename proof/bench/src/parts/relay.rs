//! The throughput of the relay: only order runs, with a large backlog in its outbox that no saga depends on.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use crate::{
    figure::Figure,
    suite::{MeasuredSuite, services},
};

/// Confirmations of orders without a saga.
pub(super) const SEED: &str = r#"
insert into orders.outbox
    (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
select id, 'order', id, 1, 'OrderConfirmed.v1', 'events.order.OrderConfirmed',
    '{"ce-source":"/services/order","ce-correlationid":"01a1fd35-0544-72a9-95e4-7c241e9c9c80","traceparent":"00-fe8bbd2c1649e11eb1edffaa9ce07dbe-1646121f39ad5b9d-00"}',
    json_build_object('order_id', id, 'customer_id', 'customer-7', 'total', json_build_object('amount', 3150, 'currency', 'USD'))
from (
    select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
        || substr(md5(random()::text), 1, 3) || '8' || substr(md5(n::text), 1, 15))::uuid as id
    from generate_series(1, $1) as n
) as ids"#;

/// By the times at which the relay marked them as published. The duration of the first batch is unknown, so it does not count.
pub(super) const RATE: &str = "
with moved as (
    select published_at from orders.outbox_published where aggregate_sequence = 1 and saga_id is null
)
select (count(*) filter (where published_at > (select min(published_at) + interval '50 ms' from moved))
    / extract(epoch from max(published_at) - (min(published_at) + interval '50 ms')))::float8
from moved";

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let rows = if suite.quick { 20_000 } else { 200_000 };
    suite.service("stop", &services(), &[]).await?;
    let mut connection = suite.superuser().await?;
    sqlx::query(SEED).bind(rows).execute(&mut connection).await?;
    for statement in ["vacuum analyze orders.outbox", "checkpoint"] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    suite.service("start", &["order"], &[]).await?;
    let limit = Instant::now() + Duration::from_secs(300);
    let left = "select exists (select from orders.outbox)";
    while sqlx::query_scalar(left).fetch_one(&mut connection).await? {
        ensure!(Instant::now() < limit, "the relay does not drain its outbox");
        sleep(Duration::from_millis(200)).await;
    }
    let per_second: f64 = sqlx::query_scalar(RATE).fetch_one(&mut connection).await?;
    suite.service("start", &services(), &[]).await?;
    Ok(vec![Figure::new(format!("events drained, of {rows}"), per_second, "1/s").at_least(15_000.0)])
}
