//! The broker is disposable: stopped, killed or emptied under load, it costs no order.

use std::time::Duration;

use anyhow::ensure;
use contracts::{INVENTORY, ORDER, order_fulfillment::RESERVE_STOCK};
use messaging::{MessagingArgs, consumer, housekeeping};
use suite_tests::{Dancers, Replica, Stage, Tuning, order_of};
use testkit::{Store, eventually};
use tokio::task::JoinHandle;

use crate::Test;

/// No period rescues anybody: what the broker loses has to be noticed when it is lost.
fn no_second_look() -> Tuning {
    let long = Duration::from_secs(3_600);
    Tuning { reconcile_every: long, saga_deadline: 2 * long, ..Tuning::default() }
}

/// Places `count` orders one after the other; each one must be accepted at once, broker or not.
fn place_many(suite: &Dancers, count: usize) -> JoinHandle<Test> {
    let client = suite.order.client.clone();
    tokio::spawn(async move {
        for _ in 0..count {
            client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?.expect(201)?;
        }
        Ok(())
    })
}

/// Also the orders that were on their way when the broker lost them.
async fn all_confirmed(stage: &Stage, count: i64) -> Test {
    stage.becomes("select count(*) from orders.customer_order where status = 'CONFIRMED'", count).await
}

/// And nothing that was away cost an attempt.
async fn all_confirmed_and_audited(stage: &Stage, count: i64) -> Test {
    all_confirmed(stage, count).await?;
    stage.nothing_was_counted().await?;
    stage.audit().await
}

async fn some_confirmed(stage: &Stage) -> Test {
    let confirmed = "select count(*) from orders.customer_order where status = 'CONFIRMED'";
    eventually(Duration::from_secs(20), async || stage.number(confirmed).await.is_ok_and(|n| n > 20)).await
}

#[suite_tests::test]
async fn orders_placed_without_a_broker_are_confirmed_later() -> Test {
    let (stage, suite) = Stage::selling(100, 100_000).await?;
    stage.nats.lock().await.stop().await?;
    place_many(&suite, 100).await??;
    eventually(Duration::from_secs(10), async || {
        suite.order.client.get("/health/ready").await.is_ok_and(|a| a.status == 503)
    })
    .await?;
    stage.nats.lock().await.start_again().await?;
    all_confirmed_and_audited(&stage, 100).await
}

#[suite_tests::test]
async fn the_broker_killed_under_load_loses_no_order() -> Test {
    let (stage, suite) = Stage::selling_with(no_second_look(), 100, 100_000).await?;
    let load = place_many(&suite, 300);
    some_confirmed(&stage).await?;
    for _ in 0..2 {
        let mut nats = stage.nats.lock().await;
        nats.kill();
        nats.start_again().await?;
    }
    load.await??;
    all_confirmed_and_audited(&stage, 300).await
}

#[suite_tests::test]
async fn the_broker_emptied_under_load_loses_no_order() -> Test {
    let (stage, suite) = Stage::selling_with(no_second_look(), 100, 100_000).await?;
    let load = place_many(&suite, 300);
    some_confirmed(&stage).await?;
    stage.nats.lock().await.wipe().await?;
    load.await??;
    all_confirmed_and_audited(&stage, 300).await
}

#[suite_tests::test]
async fn an_emptied_broker_gets_what_orders_still_need() -> Test {
    let (stage, suite) = Stage::selling_with(no_second_look(), 100, 100_000).await?;
    // Nobody takes the payment step, so every order waits for an event that only the broker has.
    stage.pause(&suite.payment, "process_payment").await?;
    place_many(&suite, 50).await??;
    let reserved = "select count(*) from inventory.outbox_published where event_type = 'StockReserved.v1'";
    stage.becomes(reserved, 50).await?;
    stage.nats.lock().await.wipe().await?;
    stage.resume(&suite.payment, "process_payment").await?;
    all_confirmed(&stage, 50).await?;
    let relay = suite.inventory.client.get("/api/admin/relay").await?.expect(200)?;
    ensure!(relay["republished"].as_i64() >= Some(50), "{relay}");
    stage.audit().await
}

#[suite_tests::test]
async fn the_broker_back_in_an_older_state_loses_no_order() -> Test {
    rolled_back(Store::Whole).await
}

#[suite_tests::test]
async fn a_broker_older_than_its_consumers_loses_no_order() -> Test {
    rolled_back(Store::Messages).await
}

#[suite_tests::test]
async fn a_power_cut_that_leaves_consumers_places_loses_no_order() -> Test {
    rolled_back(Store::PowerCut).await
}

async fn rolled_back(what: Store) -> Test {
    let (stage, suite) = Stage::selling_with(no_second_look(), 100, 100_000).await?;
    place_many(&suite, 20).await??;
    all_confirmed(&stage, 20).await?;
    let older = stage.nats.lock().await.keep_copy().await?;
    let load = place_many(&suite, 300);
    eventually(Duration::from_secs(20), async || {
        stage
            .number("select count(*) from orders.customer_order where status = 'CONFIRMED'")
            .await
            .is_ok_and(|n| n > 100)
    })
    .await?;
    stage.nats.lock().await.roll_back(&older, what).await?;
    load.await??;
    all_confirmed_and_audited(&stage, 320).await
}

/// Whoever asked the broker something before it died is answered by nobody, and asks again soon.
#[suite_tests::test]
async fn a_broker_killed_while_it_hangs_delays_orders_by_seconds() -> Test {
    let (stage, suite) = Stage::selling_with(no_second_look(), 100, 100_000).await?;
    place_many(&suite, 5).await??;
    all_confirmed(&stage, 5).await?;
    stage.nats.lock().await.pause()?;
    place_many(&suite, 5).await??;
    let all_miss_it = |replica: &Replica| {
        let checks = replica.startup.readiness.snapshot();
        checks.iter().filter(|(name, _)| name.starts_with("consumer")).all(|(_, check)| !check.ok)
    };
    eventually(Duration::from_secs(20), async || {
        let relay = suite.order.startup.readiness.snapshot()["relay"].ok;
        !relay && suite.all().all(all_miss_it)
    })
    .await?;
    let asked = tokio::time::Instant::now();
    let bus = &suite.order.app.participant().bus;
    let answer = consumer::broker_side(bus, &RESERVE_STOCK.consumer(), ORDER).await;
    ensure!(answer.is_err() && asked.elapsed() < Duration::from_secs(5), "{answer:?} after {:?}", asked.elapsed());
    let mut nats = stage.nats.lock().await;
    nats.kill();
    nats.start_again().await?;
    drop(nats);
    all_confirmed_and_audited(&stage, 10).await
}

/// More receipts than a statement may change within its limit, of a stream that comes back without them.
#[suite_tests::test]
async fn however_many_receipts_are_void_no_order_waits() -> Test {
    let tuning = Tuning { statement_timeout: Duration::from_secs(1), ..no_second_look() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 100_000).await?;
    place_many(&suite, 5).await??;
    all_confirmed(&stage, 5).await?;
    // A relay that goes on knows better than these receipts where its stream ends; a new one believes them.
    let Dancers { order, inventory, payment, .. } = suite;
    order.stop().await;
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
        stage.execute(sql).await?;
    }
    let mut nats = stage.nats.lock().await;
    nats.kill();
    nats.start_again().await?;
    drop(nats);
    let suite = Dancers::of(stage.start(ORDER).await?, inventory, payment);
    place_many(&suite, 5).await??;
    all_confirmed(&stage, 10).await?;
    stage.audit().await
}

/// Its ids are of yesterday, and older than anything that is kept for a day.
#[suite_tests::test(unaudited = "its events are made up")]
async fn what_a_slow_clock_has_stamped_is_kept_and_put_back() -> Test {
    let (stage, inventory) = Stage::alone_with(no_second_look(), INVENTORY).await?;
    let rows = "insert into inventory.outbox
            (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
        select overlay(inventory.uuid_v7_floor(now() - interval '25 hours')::text placing lpad(n::text, 12, '0') from 25)::uuid,
            'product', n, 1, 'StockReplenished.v1', 'events.inventory.StockReplenished', '{}', '{}'
        from generate_series(1, 10) n";
    stage.execute(rows).await?;
    let published = "select count(*) from inventory.outbox_published";
    stage.becomes(published, 10).await?;
    let mut conn = inventory.app.participant().pools.work.acquire().await?;
    housekeeping::tidy(&mut conn, &MessagingArgs::default()).await?;
    ensure!(stage.number(published).await? == 10, "receipts of the last minute are gone");
    stage.nats.lock().await.wipe().await?;
    eventually(Duration::from_secs(20), async || {
        let relay = inventory.client.get("/api/admin/relay").await?.expect(200)?;
        ensure!(relay["republished"] == 10 && relay["lag"] == 0, "{relay}");
        anyhow::Ok(())
    })
    .await
}

#[suite_tests::test(unaudited = "it would miss the events of which the receipts say where they were")]
async fn nothing_is_published_to_consumers_ahead_of_the_stream() -> Test {
    let (stage, suite) = Stage::selling_with(no_second_look(), 100, 100_000).await?;
    place_many(&suite, 20).await??;
    all_confirmed(&stage, 20).await?;
    let older = stage.nats.lock().await.keep_copy().await?;
    place_many(&suite, 10).await??;
    all_confirmed(&stage, 30).await?;
    stage.dismiss_keeper();
    let mut nats = stage.nats.lock().await;
    nats.stop().await?;
    // As if the relay had crashed between the broker's receipts and writing them down.
    stage.execute("update orders.relay_lease set last_sequence = 1, last_event_id = null").await?;
    nats.roll_back(&older, Store::Messages).await?;
    drop(nats);
    place_many(&suite, 15).await??;
    let waiting = "select count(*) from orders.outbox";
    eventually(Duration::from_secs(20), async || {
        let ready = suite.order.client.get("/health/ready").await?;
        ensure!(ready.body.to_string().contains("made anew") || stage.number(waiting).await? == 0, "{ready:?}");
        anyhow::Ok(())
    })
    .await?;
    ensure!(stage.number(waiting).await? == 15, "their places are those of events that consumers have had");
    stage.appoint_keeper().await?;
    all_confirmed(&stage, 45).await
}

#[suite_tests::test]
async fn a_message_that_vanishes_is_published_again_half_way() -> Test {
    let tuning = suite_tests::Tuning { saga_deadline: Duration::from_secs(6), ..Default::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 100).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let order = suite.place(&[("A", 1)], "tok_visa").await?;
    let reserved = "select count(*) from inventory.outbox_published where event_type = 'StockReserved.v1'";
    stage.becomes(reserved, 1).await?;
    let stream = stage.jetstream().await?.get_stream("INVENTORY").await?;
    let last = stream.cached_info().state.last_sequence;
    stream.delete_message(last).await?;
    stage.resume(&suite.payment, "process_payment").await?;
    suite.saga_becomes(&order, "COMPLETED").await?;
    stage.audit().await
}
