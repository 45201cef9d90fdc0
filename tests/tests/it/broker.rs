//! The broker is disposable: no order is lost when it is stopped, killed or emptied under load.

use contracts::order_fulfillment::RESERVE_STOCK;
use messaging::{MessagingArgs, consumer};
use testkit::Store;
use tokio::task::JoinHandle;

use crate::prelude::*;

const RESERVED: &str = "select count(*) from inventory.outbox_published where event_type = 'StockReserved.v1'";

/// Periodic checks are off: the suite must detect a loss when it happens.
fn no_second_look() -> Tuning {
    let long = Duration::from_secs(3_600);
    Tuning { reconcile_every: long, saga_deadline: 2 * long, ..Tuning::default() }
}

/// Places 300 orders one after the other; each must be accepted at once, with or without a broker.
fn load(participants: &Participants) -> JoinHandle<Test> {
    let client = participants.order.client.clone();
    tokio::spawn(async move { client.order_many(300, "tok_visa").await.map(drop) })
}

/// All orders are confirmed, also those in flight when the broker lost them, and no attempt was counted for an outage.
async fn all_confirmed_and_audited(suite: &TestSuite, count: i64) -> Test {
    suite.all_confirmed(count).await?;
    suite.nothing_was_counted().await?;
    suite.audit().await
}

async fn confirmed_more_than(suite: &TestSuite, count: i64) -> Test {
    eventually(async || suite.number(CONFIRMED).await.is_ok_and(|confirmed| confirmed > count)).await
}

#[suite_tests::test]
async fn orders_placed_without_a_broker_are_confirmed_later() -> Test {
    let (suite, participants) = TestSuite::selling(100, 100_000).await?;
    suite.nats.lock().await.stop().await?;
    participants.place_many(100, "tok_visa").await?;
    eventually(async || participants.order.client.get("/health/ready").await.is_ok_and(|a| a.status == 503)).await?;
    suite.nats.lock().await.start_again().await?;
    all_confirmed_and_audited(&suite, 100).await
}

#[suite_tests::test]
async fn the_broker_killed_under_load_loses_no_order() -> Test {
    let (suite, participants) = TestSuite::selling_with(no_second_look(), 100, 100_000).await?;
    let load = load(&participants);
    confirmed_more_than(&suite, 20).await?;
    suite.crash_broker().await?;
    suite.crash_broker().await?;
    load.await??;
    all_confirmed_and_audited(&suite, 300).await
}

#[suite_tests::test]
async fn the_broker_emptied_under_load_loses_no_order() -> Test {
    let (suite, participants) = TestSuite::selling_with(no_second_look(), 100, 100_000).await?;
    let load = load(&participants);
    confirmed_more_than(&suite, 20).await?;
    suite.nats.lock().await.wipe().await?;
    load.await??;
    all_confirmed_and_audited(&suite, 300).await
}

#[suite_tests::test]
async fn an_emptied_broker_gets_the_events_still_needed() -> Test {
    let (suite, participants) = TestSuite::selling_with(no_second_look(), 100, 100_000).await?;
    // The payment step is paused, so every order waits for an event that exists only in the broker.
    suite.pause(&participants.payment, "process_payment").await?;
    participants.place_many(50, "tok_visa").await?;
    suite.becomes(RESERVED, 50).await?;
    suite.nats.lock().await.wipe().await?;
    suite.resume(&participants.payment, "process_payment").await?;
    suite.all_confirmed(50).await?;
    let relay = participants.inventory.client.get("/api/admin/relay").await?.expect(200)?;
    ensure!(relay["republished"].as_i64() >= Some(50), "{relay}");
    suite.audit().await
}

cases! {
    fn a_rolled_back_broker_loses_no_order() = rolled_back(Store::Whole);
    fn a_stream_behind_its_consumers_loses_no_order() = rolled_back(Store::Messages);
    fn a_power_cut_that_keeps_consumer_state_loses_no_order() = rolled_back(Store::PowerCut);
}

async fn rolled_back(what: Store) -> Test {
    let (suite, participants) = TestSuite::selling_with(no_second_look(), 100, 100_000).await?;
    participants.place_many(20, "tok_visa").await?;
    suite.all_confirmed(20).await?;
    let older = suite.nats.lock().await.keep_copy().await?;
    let load = load(&participants);
    confirmed_more_than(&suite, 100).await?;
    suite.nats.lock().await.roll_back(&older, what).await?;
    load.await??;
    all_confirmed_and_audited(&suite, 320).await
}

/// Requests that the broker had not answered when it died time out, and are repeated soon.
#[suite_tests::test]
async fn a_broker_killed_while_it_hangs_delays_orders_by_seconds() -> Test {
    let (suite, participants) = TestSuite::selling_with(no_second_look(), 100, 100_000).await?;
    participants.place_many(5, "tok_visa").await?;
    suite.all_confirmed(5).await?;
    suite.nats.lock().await.pause()?;
    participants.place_many(5, "tok_visa").await?;
    let all_miss_it = |replica: &Replica| {
        let checks = replica.startup.readiness.snapshot();
        checks.iter().filter(|(name, _)| name.starts_with("consumer")).all(|(_, check)| !check.ok)
    };
    eventually(async || {
        let relay = participants.order.startup.readiness.snapshot()["relay"].ok;
        !relay && participants.all().all(all_miss_it)
    })
    .await?;
    let began = tokio::time::Instant::now();
    let bus = &participants.order.app.participant().bus;
    let answer = consumer::broker_side(bus, &RESERVE_STOCK.consumer(), ORDER).await;
    ensure!(answer.is_err() && began.elapsed() < Duration::from_secs(5), "{answer:?} after {:?}", began.elapsed());
    suite.crash_broker().await?;
    all_confirmed_and_audited(&suite, 10).await
}

/// More publish acknowledgements than one statement can change within its time limit, of a stream that was lost.
#[suite_tests::test]
async fn voiding_many_publish_acks_delays_no_order() -> Test {
    let tuning = Tuning { statement_timeout: Duration::from_secs(1), ..no_second_look() };
    let (suite, mut participants) = TestSuite::selling_with(tuning, 100, 100_000).await?;
    participants.place_many(5, "tok_visa").await?;
    suite.all_confirmed(5).await?;
    // A running relay knows the end of its stream better than these acknowledgements; a new relay trusts them.
    participants.order.stop().await;
    for sql in [
        "insert into orders.outbox_published
            (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload,
            saga_id, created_at, stream, stream_sequence, stream_epoch, relay)
        select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid,
            -n, 'order', n, 1, 'OrderConfirmed.v1', 'events.order.OrderConfirmed', '{}', json_build_object('x', repeat('x', 300)),
            gen_random_uuid(), now(), 'ORDER', last_sequence + n, stream_epoch, 'relay'
        from orders.relay_lease, generate_series(1, 150000) n",
        "update orders.relay_lease set last_sequence = last_sequence + 150000, last_event_id = null",
    ] {
        suite.execute(sql).await?;
    }
    suite.crash_broker().await?;
    participants.order = suite.start(ORDER).await?;
    participants.place_many(5, "tok_visa").await?;
    suite.all_confirmed(10).await?;
    suite.audit().await
}

/// Its ids are of yesterday, and older than the retention of a day.
#[suite_tests::test(unaudited = "its events are made up")]
async fn events_stamped_by_a_slow_clock_are_kept_and_republished() -> Test {
    let (suite, inventory) = TestSuite::alone_with(no_second_look(), INVENTORY).await?;
    let rows = "insert into inventory.outbox
            (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
        select overlay(inventory.uuid_v7_floor(now() - interval '25 hours')::text placing lpad(n::text, 12, '0') from 25)::uuid,
            'product', n, 1, 'StockReplenished.v1', 'events.inventory.StockReplenished', '{}', '{}'
        from generate_series(1, 10) n";
    suite.execute(rows).await?;
    let published = "select count(*) from inventory.outbox_published";
    suite.becomes(published, 10).await?;
    let mut conn = inventory.app.participant().pools.work.acquire().await?;
    run_housekeeping(&mut conn, &MessagingArgs::default()).await?;
    ensure!(suite.number(published).await? == 10, "receipts of the last minute are gone");
    suite.nats.lock().await.wipe().await?;
    let complete = |relay: &Value| relay["republished"] == 10 && relay["lag"] == 0;
    inventory.client.until("/api/admin/relay", complete).await.map(drop)
}

#[suite_tests::test(unaudited = "it would miss the events whose publish acknowledgements were forged")]
async fn nothing_is_published_to_consumers_ahead_of_the_stream() -> Test {
    let (suite, participants) = TestSuite::selling_with(no_second_look(), 100, 100_000).await?;
    participants.place_many(20, "tok_visa").await?;
    suite.all_confirmed(20).await?;
    let older = suite.nats.lock().await.keep_copy().await?;
    participants.place_many(10, "tok_visa").await?;
    suite.all_confirmed(30).await?;
    suite.stop_reconciler();
    let mut nats = suite.nats.lock().await;
    nats.stop().await?;
    // As after a crash of the relay between the broker's acknowledgements and their commit.
    suite.execute("update orders.relay_lease set last_sequence = 1, last_event_id = null").await?;
    nats.roll_back(&older, Store::Messages).await?;
    drop(nats);
    participants.place_many(15, "tok_visa").await?;
    let waiting = "select count(*) from orders.outbox";
    eventually(async || {
        let ready = participants.order.client.get("/health/ready").await?;
        ensure!(ready.body.to_string().contains("re-created") || suite.number(waiting).await? == 0, "{ready:?}");
        anyhow::Ok(())
    })
    .await?;
    ensure!(suite.number(waiting).await? == 15, "their sequences are those of events that consumers have acknowledged");
    suite.start_reconciler().await?;
    suite.all_confirmed(45).await
}

#[suite_tests::test]
async fn a_lost_message_is_republished_at_half_the_deadline() -> Test {
    let tuning = Tuning { saga_deadline: Duration::from_secs(6), ..Default::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 100).await?;
    suite.pause(&participants.payment, "process_payment").await?;
    let order = participants.place(&[("A", 1)], "tok_visa").await?;
    suite.becomes(RESERVED, 1).await?;
    suite.lose_last("events.inventory.StockReserved").await?;
    suite.resume(&participants.payment, "process_payment").await?;
    participants.saga_becomes(&order, "COMPLETED").await?;
    suite.audit().await
}
