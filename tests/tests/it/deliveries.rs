//! A consumer with a step of the test's own: it acknowledges each delivery once, and only those that it holds.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bootstrap::CancellationToken;
use contracts::{
    OrderId,
    order_fulfillment::{CONFIRM_ORDER, PaymentProcessed},
};
use futures_util::FutureExt as _;
use messaging::{Batch, Committed, StepError, subscribe, topology};
use tokio::{sync::Notify, task::JoinHandle};
use tracing_subscriber::{filter::LevelFilter, util::SubscriberInitExt as _};

use crate::prelude::*;

/// Why no test of this file audits.
const UNAUDITED: &str = "events are made up, with no order behind them";

/// How long the broker waits for an acknowledgement before it delivers again.
const ACK_WAIT: Duration = Duration::from_secs(1);

/// The outcome of the step for a batch.
enum Work {
    Takes(Duration),
    Fails,
    /// The step defers the event.
    Defers,
}

/// Nothing consumes but the consumers that the test starts.
async fn suite() -> anyhow::Result<(TestSuite, Replica)> {
    suite_with(ACK_WAIT).await
}

async fn suite_with(ack_wait: Duration) -> anyhow::Result<(TestSuite, Replica)> {
    let suite = TestSuite::with(Tuning { by_hand: true, ..Tuning::default() }).await?;
    let settings = topology::ConsumerSettings { ack_wait, ..Default::default() };
    topology::ensure_consumer(&suite.jetstream().await?, &CONFIRM_ORDER, PAYMENT, &settings).await?;
    let order = suite.start(ORDER).await?;
    Ok((suite, order))
}

/// A consumer that runs until it is dropped, or stopped: then it finishes the work in hand.
struct Consuming {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Consuming {
    async fn end(mut self) -> Test {
        self.stop.cancel();
        Ok((&mut self.task).await?)
    }
}

impl Drop for Consuming {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Consumes `confirm_order` with this step, which gets the ids of a batch.
fn consume<F, W>(order: &Replica, consumer_batch: usize, step: F) -> Consuming
where
    F: Fn(Vec<Uuid>) -> W + Clone + Send + Sync + 'static,
    W: Future<Output = Work> + Send + 'static,
{
    let work = move |app: messaging::Outbox, batch: Batch<PaymentProcessed>| {
        let deliveries = batch.into_deliveries();
        let ids: Vec<Uuid> = deliveries.iter().map(|delivery| delivery.meta.event_id).collect();
        let work = step(ids.clone());
        async move {
            match work.await {
                Work::Takes(time) => tokio::time::sleep(time).await,
                Work::Fails => return Err(StepError::failed("together they fail")),
                Work::Defers => {
                    let mut committed = Committed::nothing();
                    committed.defer(ids[0], StepError::unavailable("later"));
                    return Ok(committed);
                }
            }
            app.claim(Batch::new(&CONFIRM_ORDER, deliveries)).await?.0.commit().await
        }
    };
    let mut consumer = order.consumer(subscribe(&order.app.participant().outbox, &CONFIRM_ORDER, work), PAYMENT);
    consumer.settings.consumer_batch = consumer_batch;
    let stop = CancellationToken::new();
    Consuming { task: tokio::spawn(consumer.run(stop.clone())), stop }
}

fn paid() -> Forged {
    Forged::paid(OrderId::new(), Uuid::now_v7())
}

/// Waits until this many events are processed and all are acknowledged; returns the number of deliveries.
async fn deliveries_of(suite: &TestSuite, events: i64) -> anyhow::Result<u64> {
    let stream = suite.jetstream().await?.get_stream(PAYMENT.stream()).await?;
    eventually(async || {
        let processed = suite.number("select count(*) from orders.inbox").await?;
        let info = stream.consumer_info(CONFIRM_ORDER.consumer()).await?;
        let acknowledged = info.num_pending == 0 && info.num_ack_pending == 0;
        ensure!(processed == events && acknowledged, "{processed} of {events}: {info:?}");
        Ok(Some(info.delivered.consumer_sequence))
    })
    .await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn prefetched_events_are_not_redelivered_during_slow_work() -> Test {
    let (suite, order) = suite().await?;
    for _ in 0..3 {
        suite.publish(&paid()).await?;
    }
    let _consuming = consume(&order, 1, |_| ready(Work::Takes(2 * ACK_WAIT)));
    ensure!(deliveries_of(&suite, 3).await? == 3);
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_second_half_of_a_batch_is_not_redelivered() -> Test {
    let (suite, order) = suite().await?;
    for _ in 0..8 {
        suite.publish(&paid()).await?;
    }
    let alone = |ids: Vec<Uuid>| ready(if ids.len() > 1 { Work::Fails } else { Work::Takes(ACK_WAIT / 2) });
    let _consuming = consume(&order, 8, alone);
    ensure!(deliveries_of(&suite, 8).await? == 8);
    Ok(())
}

/// Its pull request stays open until it expires, and the broker answers that one first.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn events_of_a_stopping_consumer_go_to_another() -> Test {
    let (suite, order) = suite_with(Duration::from_secs(600)).await?;
    suite.publish(&paid()).await?;
    let held = Arc::<Held>::default();
    let holding = held.clone();
    let first = consume(&order, 1, move |_| holding.clone().hold(Work::Takes(Duration::ZERO)));
    held.begun.notified().await;
    first.stop.cancel();
    suite.publish(&paid()).await?;
    let second = consume(&order, 1, |_| ready(Work::Takes(Duration::ZERO)));
    suite.becomes("select count(*) from orders.inbox", 1).await?;
    held.go_on.notify_one();
    first.end().await?;
    deliveries_of(&suite, 2).await?;
    second.end().await
}

/// The broker loses its data while a step works on its first message. When that work is acknowledged, another consumer holds
/// the message that has the same sequence now; the acknowledgement must not apply to it.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_ack_of_a_lost_message_does_not_ack_its_successor() -> Test {
    let (suite, order) = suite().await?;
    let (lost, successor) = (paid(), paid());
    suite.publish(&lost).await?;
    let (held, deferred) = (Arc::<Held>::default(), Arc::<Held>::default());
    let holding = held.clone();
    let first = consume(&order, 1, move |_| holding.clone().hold(Work::Takes(Duration::ZERO)));
    held.begun.notified().await;
    // It finishes its work and requests nothing more: else it could be the one that gets the successor.
    first.stop.cancel();
    let bus = &order.app.participant().bus;
    suite.nats.lock().await.kill();
    eventually(async || !bus.is_connected()).await?;
    suite.nats.lock().await.wipe().await?;
    eventually(async || suite.publish(&successor).await.is_ok()).await?;
    let (deferring, before) = (deferred.clone(), Arc::new(AtomicBool::new(false)));
    let second = consume(&order, 1, move |_| match before.swap(true, Ordering::Relaxed) {
        false => deferring.clone().hold(Work::Defers).left_future(),
        true => ready(Work::Takes(Duration::ZERO)).right_future(),
    });
    deferred.begun.notified().await;
    held.go_on.notify_one();
    first.end().await?;
    deferred.go_on.notify_one();
    deliveries_of(&suite, 2).await?;
    second.end().await
}

/// Work that reports that it has begun, and waits for permission to continue.
#[derive(Default)]
struct Held {
    begun: Notify,
    go_on: Notify,
}

impl Held {
    async fn hold(self: Arc<Self>, work: Work) -> Work {
        self.begun.notify_one();
        self.go_on.notified().await;
        work
    }
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_deferred_twice_in_a_batch_is_no_error() -> Test {
    let log = tempfile::NamedTempFile::new()?;
    let subscriber = tracing_subscriber::fmt().with_writer(log.reopen()?);
    let _guard = subscriber.with_max_level(LevelFilter::ERROR).finish().set_default();
    let (suite, order) = suite().await?;
    let twice = paid();
    for _ in 0..10 {
        suite.publish(&twice).await?;
    }
    let seen = Arc::new(AtomicBool::new(false));
    let deferring = seen.clone();
    // Until two copies are in one batch.
    let _consuming = consume(&order, 10, move |ids| {
        let done = deferring.fetch_or(ids.len() > 1, Ordering::Relaxed);
        ready(if done { Work::Takes(Duration::ZERO) } else { Work::Defers })
    });
    deliveries_of(&suite, 1).await?;
    ensure!(seen.load(Ordering::Relaxed), "no batch held two copies");
    let log = std::fs::read_to_string(log.path())?;
    ensure!(log.is_empty(), "{log}");
    Ok(())
}
