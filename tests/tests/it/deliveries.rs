//! A consumer with a step of the test's own: what it holds it answers for, each event once.

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
    Currency, Money, ORDER, OrderId, PAYMENT, PaymentId,
    order_fulfillment::{CONFIRM_ORDER, PaymentProcessed},
};
use futures_util::FutureExt as _;
use messaging::{Batch, Committed, StepError, subscribe, topology};
use suite_tests::{Forged, Replica, Stage, Tuning};
use testkit::eventually;
use tokio::{sync::Semaphore, task::JoinHandle};
use tracing_subscriber::util::SubscriberInitExt as _;
use uuid::Uuid;

use crate::Test;

/// Why no test of this file audits.
const UNAUDITED: &str = "events are made up, with no order behind them";

/// How long the broker waits for an answer before it delivers again.
const ACK_WAIT: Duration = Duration::from_secs(1);

/// What the step makes of a batch.
enum Work {
    Takes(Duration),
    Fails,
    /// It could not be done now.
    Defers,
}

/// Nothing consumes but what the test starts.
async fn stage() -> anyhow::Result<(Stage, Replica)> {
    stage_with(ACK_WAIT).await
}

async fn stage_with(ack_wait: Duration) -> anyhow::Result<(Stage, Replica)> {
    let stage = Stage::with(Tuning { by_hand: true, ..Tuning::default() }).await?;
    let settings = topology::ConsumerSettings { ack_wait, ..Default::default() };
    topology::ensure_consumer(&stage.jetstream().await?, &CONFIRM_ORDER, PAYMENT, &settings).await?;
    let order = stage.start(ORDER).await?;
    Ok((stage, order))
}

/// A consumer that runs until it is dropped, or ended: then it finishes what it has in hand.
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

/// Consumes `confirm_order` by this step, which is given the ids of a batch.
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
    let order_id = OrderId::new();
    let event = PaymentProcessed {
        order_id,
        payment_id: PaymentId::of(order_id),
        amount: Money::new(100, Currency::USD),
        gateway_reference: "forged".to_owned(),
    };
    Forged::new(PAYMENT, Uuid::now_v7(), &event)
}

/// Waits until so many events are had and all are acknowledged; how often the broker has delivered any.
async fn deliveries_of(stage: &Stage, events: i64) -> anyhow::Result<u64> {
    let stream = stage.jetstream().await?.get_stream(PAYMENT.stream()).await?;
    eventually(Duration::from_secs(20), async || {
        let had = stage.number("select count(*) from orders.inbox").await?;
        let info = stream.consumer_info(CONFIRM_ORDER.consumer()).await?;
        ensure!(had == events && info.num_pending == 0 && info.num_ack_pending == 0, "{had} of {events}: {info:?}");
        Ok(Some(info.delivered.consumer_sequence))
    })
    .await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn what_is_fetched_ahead_of_slow_work_is_not_delivered_again() -> Test {
    let (stage, order) = stage().await?;
    for _ in 0..3 {
        stage.publish(&paid()).await?;
    }
    let _consuming = consume(&order, 1, |_| ready(Work::Takes(2 * ACK_WAIT)));
    let delivered = deliveries_of(&stage, 3).await?;
    ensure!(delivered == 3, "{delivered} deliveries of 3 events");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn what_waits_behind_the_half_of_a_batch_is_not_delivered_again() -> Test {
    let (stage, order) = stage().await?;
    for _ in 0..8 {
        stage.publish(&paid()).await?;
    }
    let alone = |ids: Vec<Uuid>| ready(if ids.len() > 1 { Work::Fails } else { Work::Takes(ACK_WAIT / 2) });
    let _consuming = consume(&order, 8, alone);
    let delivered = deliveries_of(&stage, 8).await?;
    ensure!(delivered == 8, "{delivered} deliveries of 8 events");
    Ok(())
}

/// Its request for messages is open until it expires, and the broker answers that first.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn what_comes_to_a_stopping_consumer_goes_to_another() -> Test {
    let (stage, order) = stage_with(Duration::from_secs(600)).await?;
    stage.publish(&paid()).await?;
    let (in_hand, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let first = consume(&order, 1, {
        let (in_hand, go_on) = (in_hand.clone(), go_on.clone());
        move |_| hold(in_hand.clone(), go_on.clone(), Work::Takes(Duration::ZERO))
    });
    in_hand.acquire().await?.forget();
    first.stop.cancel();
    stage.publish(&paid()).await?;
    let second = consume(&order, 1, |_| ready(Work::Takes(Duration::ZERO)));
    stage.becomes("select count(*) from orders.inbox", 1).await?;
    go_on.add_permits(1);
    first.end().await?;
    deliveries_of(&stage, 2).await?;
    second.end().await
}

/// The broker comes back empty while a step works on its first message. What takes the same place in the stream is in
/// somebody else's hands when that work is answered for, and is given back then.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_answer_to_a_lost_message_is_none_to_its_successor() -> Test {
    let (stage, order) = stage().await?;
    let (lost, successor) = (paid(), paid());
    stage.publish(&lost).await?;
    let (in_hand, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let first = consume(&order, 1, {
        let (in_hand, go_on) = (in_hand.clone(), go_on.clone());
        move |_| hold(in_hand.clone(), go_on.clone(), Work::Takes(Duration::ZERO))
    });
    in_hand.acquire().await?.forget();
    let bus = &order.app.participant().bus;
    stage.nats.lock().await.kill();
    eventually(Duration::from_secs(10), async || !bus.is_connected()).await?;
    stage.nats.lock().await.wipe().await?;
    eventually(Duration::from_secs(10), async || stage.publish(&successor).await.is_ok()).await?;
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
    deliveries_of(&stage, 2).await?;
    second.end().await
}

/// Says that it has begun, and waits until it may go on.
async fn hold(begun: Arc<Semaphore>, go_on: Arc<Semaphore>, work: Work) -> Work {
    begun.add_permits(1);
    if let Ok(permit) = go_on.acquire().await {
        permit.forget();
    }
    work
}

/// Where errors are logged to.
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
    let (stage, order) = stage().await?;
    let twice = paid();
    for _ in 0..10 {
        stage.publish(&twice).await?;
    }
    let seen = Arc::new(AtomicBool::new(false));
    let deferring = seen.clone();
    // Until it has come twice at a time.
    let _consuming = consume(&order, 10, move |ids| {
        let done = deferring.fetch_or(ids.len() > 1, Ordering::Relaxed);
        ready(if done { Work::Takes(Duration::ZERO) } else { Work::Defers })
    });
    deliveries_of(&stage, 1).await?;
    ensure!(seen.load(Ordering::Relaxed), "it never came twice");
    let log = String::from_utf8(log.0.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
    ensure!(log.is_empty(), "{log}");
    Ok(())
}
