//! The throughput of a single consumer: from a stream through a step that claims the inbox and commits. The broker and the
//! tables are private to this part, so that nothing else uses them.

use std::time::Duration;

use anyhow::ensure;
use async_nats::{
    HeaderMap,
    jetstream::{self, message::PublishMessage},
};
use contracts::{Currency, Money, ORDER, OrderId, PAYMENT, order_fulfillment::OrderConfirmed};
use messaging::{Batch, Bus, Committed, Consumer, Metrics, Outbox, StepError, subscribe, topology};
use resilience::Breakers;
use saga::{Event, Kind, StepOn};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use testkit::Nats;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{figure::Figure, suite::MeasuredSuite};

static EMPTY_STEP: StepOn<OrderConfirmed> = StepOn::new(1, "empty_step", PAYMENT, &[], Kind::Projection);

async fn empty_step(outbox: Outbox, batch: Batch<OrderConfirmed>) -> Result<Committed, StepError> {
    let (work, _) = outbox.claim(batch).await?;
    work.commit().await
}

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let events: usize = if suite.quick { 20_000 } else { 200_000 };
    let broker = Nats::start().await?;
    let per_second = rate(events, &broker, broker.url(), suite.database("yardstick")?.parse()?).await?;
    Ok(vec![Figure::new(format!("events through an empty step, of {events}"), per_second, "1/s").at_least(10_000.0)])
}

/// Events a second through an empty step, which reaches broker and database at these addresses.
pub(super) async fn rate(events: usize, broker: &Nats, url: String, options: PgConnectOptions) -> anyhow::Result<f64> {
    let jetstream = jetstream::new(async_nats::connect(broker.url()).await?);
    topology::ensure_stream(&jetstream, ORDER, &topology::StreamSettings::default()).await?;
    topology::ensure_consumer(&jetstream, &EMPTY_STEP, ORDER, &topology::ConsumerSettings::default()).await?;
    publish(&jetstream, events).await?;
    let client = async_nats::connect(url).await?;
    let options = options.options([("search_path", "payment")]);
    // As many as a service has for its steps.
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
    sqlx::query("truncate inbox").execute(&pool).await?;
    let stop = CancellationToken::new();
    let mut consuming = JoinSet::new();
    consuming.spawn(consumer(&pool, Bus::new(client, PAYMENT)).run(stop.clone()));
    let per_second = drained(&pool, events).await;
    stop.cancel();
    consuming.join_all().await;
    per_second
}

fn consumer(pool: &PgPool, bus: Bus) -> Consumer {
    let outbox = Outbox::new(pool.clone(), bus, Metrics::default());
    let breaker = Breakers::disabled().of(&EMPTY_STEP);
    Consumer { breaker, ..Consumer::new(&outbox, subscribe(&outbox, &EMPTY_STEP, empty_step), ORDER) }
}

/// Events a second between the first and the last batch, by the times in the inbox.
async fn drained(pool: &PgPool, events: usize) -> anyhow::Result<f64> {
    let limit = Instant::now() + Duration::from_secs(300);
    while sqlx::query_scalar::<_, i64>("select count(*) from inbox").fetch_one(pool).await? < events as i64 {
        ensure!(Instant::now() < limit, "the consumer does not drain its stream");
        sleep(Duration::from_millis(500)).await;
    }
    let rate = "select ((count(*) - 1) / extract(epoch from max(processed_at) - min(processed_at)))::float8 from inbox";
    Ok(sqlx::query_scalar(rate).fetch_one(pool).await?)
}

async fn publish(jetstream: &jetstream::Context, events: usize) -> anyhow::Result<()> {
    // Below the client's limit of pending publish acknowledgements.
    const AT_ONCE: usize = 1_000;
    let subject = OrderConfirmed::TYPE.subject(ORDER);
    for first in (0..events).step_by(AT_ONCE) {
        let mut acks = Vec::with_capacity(AT_ONCE);
        for _ in first..events.min(first + AT_ONCE) {
            acks.push(jetstream.send_publish(subject.clone(), message()?).await?);
        }
        for ack in acks {
            ack.await?;
        }
    }
    Ok(())
}

fn message() -> anyhow::Result<PublishMessage> {
    let event = OrderConfirmed {
        order_id: OrderId::new(),
        customer_id: "customer-7".to_owned(),
        total: Money::new(3_150, Currency::USD),
    };
    let event_id = Uuid::now_v7().to_string();
    let mut headers = HeaderMap::new();
    headers.insert("ce-id", event_id.as_str());
    headers.insert("ce-type", OrderConfirmed::TYPE.wire_name());
    headers.insert("ce-specversion", "1.0");
    headers.insert("ce-source", "/services/order");
    headers.insert("ce-subject", event.aggregate_id());
    headers.insert("ce-sagaid", Uuid::now_v7().to_string());
    headers.insert("ce-sagatype", "OrderFulfillment");
    headers.insert("ce-correlationid", event_id.as_str());
    headers.insert("ce-sequence", "2");
    headers.insert("traceparent", "00-fe8bbd2c1649e11eb1edffaa9ce07dbe-1646121f39ad5b9d-00");
    Ok(PublishMessage::build().payload(serde_json::to_vec(&event)?.into()).headers(headers).message_id(event_id))
}
