//! A consumer with a step of the test's own: it acknowledges each delivery once, and only those that it holds.

use std::{
    future::ready,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use bootstrap::CancellationToken;
use contracts::{
    ORDER, OrderId, PAYMENT,
    order_fulfillment::{CONFIRM_ORDER, PaymentProcessed},
};
use futures_util::FutureExt as _;
use messaging::{Batch, Committed, StepError, subscribe, topology};
use suite_tests::{Forged, Replica, TestSuite, Tuning};
use testkit::eventually;
use tokio::{sync::Semaphore, task::JoinHandle};
use tracing_subscriber::util::SubscriberInitExt as _;
use uuid::Uuid;

use crate::Test;

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
    eventually(Duration::from_secs(20), async || {
        let processed = suite.number("select count(*) from orders.inbox").await?;
        let info = stream.consumer_info(CONFIRM_ORDER.consumer()).await?;
        ensure!(
            processed == events && info.num_pending == 0 && info.num_ack_pending == 0,
            "{processed} of {events}: {info:?}"
        );
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
    let delivered = deliveries_of(&suite, 3).await?;
    ensure!(delivered == 3, "{delivered} deliveries of 3 events");
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
    let delivered = deliveries_of(&suite, 8).await?;
    ensure!(delivered == 8, "{delivered} deliveries of 8 events");
    Ok(())
}

/// Its pull request stays open until it expires, and the broker answers that one first.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn events_of_a_stopping_consumer_go_to_another() -> Test {
    let (suite, order) = suite_with(Duration::from_secs(600)).await?;
    suite.publish(&paid()).await?;
    let (in_hand, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let first = consume(&order, 1, {
        let (in_hand, go_on) = (in_hand.clone(), go_on.clone());
        move |_| hold(in_hand.clone(), go_on.clone(), Work::Takes(Duration::ZERO))
    });
    in_hand.acquire().await?.forget();
    first.stop.cancel();
    suite.publish(&paid()).await?;
    let second = consume(&order, 1, |_| ready(Work::Takes(Duration::ZERO)));
    suite.becomes("select count(*) from orders.inbox", 1).await?;
    go_on.add_permits(1);
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
    let (in_hand, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let first = consume(&order, 1, {
        let (in_hand, go_on) = (in_hand.clone(), go_on.clone());
        move |_| hold(in_hand.clone(), go_on.clone(), Work::Takes(Duration::ZERO))
    });
    in_hand.acquire().await?.forget();
    let bus = &order.app.participant().bus;
    suite.nats.lock().await.kill();
    eventually(Duration::from_secs(10), async || !bus.is_connected()).await?;
    suite.nats.lock().await.wipe().await?;
    eventually(Duration::from_secs(10), async || suite.publish(&successor).await.is_ok()).await?;
    let given_back = Arc::new(Semaphore::new(0));
    let second = consume(&order, 1, {
        let (in_hand, given_back) = (in_hand.clone(), given_back.clone());
        let before = Arc::new(AtomicBool::new(false));
        move |_| match before.swap(true, Ordering::Relaxed) {
            false => hold(in_hand.clone(), given_back.clone(), Work::Defers).left_future(),
            true => ready(Work::Takes(Duration::ZERO)).right_future(),
        }
    });
    in_hand.acquire().await?.forget();
    go_on.add_permits(1);
    first.end().await?;
    given_back.add_permits(1);
    deliveries_of(&suite, 2).await?;
    second.end().await
}

/// Reports that it has begun, and waits for permission to continue.
async fn hold(begun: Arc<Semaphore>, go_on: Arc<Semaphore>, work: Work) -> Work {
    begun.add_permits(1);
    if let Ok(permit) = go_on.acquire().await {
        permit.forget();
    }
    work
}

/// The target of error logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_deferred_twice_in_a_batch_is_no_error() -> Test {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _guard = subscriber.with_max_level(tracing_subscriber::filter::LevelFilter::ERROR).finish().set_default();
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
    let log = String::from_utf8(log.0.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
    ensure!(log.is_empty(), "{log}");
    Ok(())
}
