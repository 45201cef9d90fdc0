//! A relay and a consumer whose broker and database are 2 ms away, as in another data centre nearby, against both on this machine.

use std::time::Duration;

use anyhow::ensure;
use contracts::ORDER;
use messaging::{Bus, Metrics, Outbox, Relay, topology};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::{Manner, Nats, Proxy};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{consumer, ratio, relay};
use crate::{figure::Figure, suite::MeasuredSuite};

/// In each direction.
const DELAY: Duration = Duration::from_millis(2);

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let events = if suite.quick { 20_000 } else { 100_000 };
    let near: PgConnectOptions = suite.database("yardstick")?.parse()?;
    let to_database = Proxy::start(near.get_port()).await?;
    to_database.behave(Manner::Latency(DELAY));
    let mut figures = Vec::new();
    for what in ["relay", "consumer"] {
        let (mut here, mut away) = (Vec::new(), Vec::new());
        for is_away in [false, true, true, false] {
            let broker = Nats::start().await?;
            let to_broker = Proxy::start(broker.port()).await?;
            to_broker.behave(Manner::Latency(DELAY));
            let (url, options) = match is_away {
                true => (format!("nats://127.0.0.1:{}", to_broker.port()), near.clone().port(to_database.port())),
                false => (broker.url(), near.clone()),
            };
            let rate = match what {
                "relay" => relayed(events, &broker, url, options).await?,
                _ => consumer::rate(events, &broker, url, options).await?,
            };
            if is_away { &mut away } else { &mut here }.push(rate);
        }
        figures.push(Figure::median_of(format!("{what}, broker and database here"), &here, "1/s"));
        figures.push(Figure::median_of(format!("{what}, 2 ms away"), &away, "1/s"));
        figures.push(ratio(&format!("{what}, 2 ms away / here"), &away, &here));
    }
    Ok(figures)
}

/// Events a second of a relay that reaches broker and database at these addresses.
async fn relayed(events: usize, broker: &Nats, url: String, options: PgConnectOptions) -> anyhow::Result<f64> {
    let jetstream = async_nats::jetstream::new(async_nats::connect(broker.url()).await?);
    topology::ensure_stream(&jetstream, ORDER, &topology::StreamSettings::default()).await?;
    let options = options.options([("search_path", "orders")]);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
    // The stream is a new one, and the relay would find events of the last one lost.
    let forget = "truncate outbox_published;
        update relay_lease set stream_epoch = 0, last_sequence = 0, last_event_id = null, last_receipt_at = null";
    sqlx::raw_sql(forget).execute(&pool).await?;
    sqlx::query(relay::SEED).bind(i64::try_from(events)?).execute(&pool).await?;
    let outbox = Outbox::new(pool.clone(), Bus::new(async_nats::connect(url).await?, ORDER), Metrics::default());
    let stop = CancellationToken::new();
    let mut relaying = JoinSet::new();
    relaying.spawn(Relay::of(&outbox).run(stop.clone()));
    let limit = Instant::now() + Duration::from_secs(300);
    while sqlx::query_scalar::<_, bool>("select exists (select from outbox)").fetch_one(&pool).await? {
        ensure!(Instant::now() < limit, "the relay does not drain its outbox");
        sleep(Duration::from_millis(200)).await;
    }
    stop.cancel();
    relaying.join_all().await;
    Ok(sqlx::query_scalar(relay::RATE).fetch_one(&pool).await?)
}
