//! The relay: one leader, in order, without skipping a row.

use std::collections::HashSet;

use faults::{FaultPoint, FaultSpec, Faults, Kind};
use messaging::lease;
use sqlx::Connection;

use crate::prelude::*;

/// Why no test of this file audits.
const UNAUDITED: &str = "most events are made up, with no order behind them";

const PUBLISHED: &str = "select count(*) from inventory.outbox_published";

fn short_lease() -> Tuning {
    Tuning { relay_lease: Duration::from_millis(600), ..Tuning::default() }
}

#[suite_tests::test]
async fn a_relay_stopped_before_marking_doubles_nothing() -> Test {
    let (suite, mut participants) = TestSuite::selling(100, 1000).await?;
    let faults = Faults::armable();
    participants.order.stop().await;
    participants.order = suite.start_with(ORDER, faults.clone(), "http://127.0.0.1:1").await?;
    for skip in 0..20 {
        let fault = FaultSpec::new(FaultPoint::AfterPublishBeforeMark, Kind::Error);
        faults.arm(fault.skip(skip % 3).first(1), "test")?;
    }
    participants.place_many(60, "tok_visa").await?;
    suite.all_confirmed(60).await?;
    ensure!(participants.product("A").await?["reserved"] == 60, "an effect was applied twice");
    suite.audit().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_relay_that_wakes_up_after_its_lease_expired_writes_nothing() -> Test {
    let suite = TestSuite::with(short_lease()).await?;
    let faults = Faults::armable();
    let first = suite.start_with(INVENTORY, faults.clone(), "").await?;
    let sleep = FaultSpec::new(FaultPoint::AfterPublishBeforeMark, Kind::Latency).latency(2_500).first(1);
    let asleep = tokio::time::Instant::now();
    faults.arm(sleep, "test")?;
    let second = suite.start(INVENTORY).await?;
    create_products(&first, 0..10).await?;
    let before = second.client.get("/api/admin/relay").await?.expect(200)?["epoch"].as_i64();
    let is_over = |relay: &Value| relay["epoch"].as_i64() > before && relay["lag"] == 0;
    second.client.until("/api/admin/relay", is_over).await?;
    create_products(&second, 10..20).await?;
    suite.becomes(PUBLISHED, 20).await?;
    // Its sleep is over, and its late write must not have counted.
    tokio::time::sleep_until(asleep + Duration::from_millis(2_500)).await;
    create_products(&second, 20..21).await?;
    suite.becomes(PUBLISHED, 21).await?;
    ensure!(suite.number("select count(distinct relay) from inventory.outbox_published").await? == 1);
    in_order_without_gaps(&suite, "INVENTORY", 21).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_thousand_events_keep_their_order_through_a_takeover() -> Test {
    let (suite, first) = TestSuite::alone_with(short_lease(), INVENTORY).await?;
    let second = suite.start(INVENTORY).await?;
    create_products(&first, 0..1).await?;
    let mut first = Some(first);
    for n in 2..=1000 {
        let price = json!({"price": {"amount": n, "currency": "USD"}});
        second.client.patch("/api/products/P-0", &price).await?.expect(200)?;
        if n == 500 {
            // Dropped, not stopped: its lease is not released but has to expire.
            drop(first.take());
        }
    }
    in_order_without_gaps(&suite, "INVENTORY", 1000).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_row_that_commits_after_a_later_one_is_published() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    let mut late = sqlx::PgConnection::connect(&suite.database.admin_url()).await?;
    let mut transaction = late.begin().await?;
    sqlx::query(
        "insert into inventory.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
        values ('019af3a0-0000-7000-8000-00000000000f', 'product', 'LATE', 1, 'StockReplenished.v1',
            'events.inventory.StockReplenished', '{}', '{}')",
    )
    .execute(&mut *transaction)
    .await?;
    create_products(&inventory, 0..5).await?;
    suite.becomes(PUBLISHED, 5).await?;
    transaction.commit().await?;
    suite.becomes(PUBLISHED, 6).await
}

/// The broker refuses the first of the two events, whose expected sequence the second one has taken.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_foreign_message_causes_no_reordering() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    create_products(&inventory, 0..1).await?;
    in_order_without_gaps(&suite, "INVENTORY", 1).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    for name in ["second", "third"] {
        inventory.client.patch("/api/products/P-0", &json!({"name": name})).await?.expect(200)?;
    }
    ensure!(suite.publish_all_again(INVENTORY).await? == 1);
    inventory.client.act("/api/admin/relay/resume").await?;
    in_order_without_gaps(&suite, "INVENTORY", 3).await?;
    let refused =
        Scrape::of(&inventory.client).await?.sum("outbox_publish_attempts_total", &[("outcome", "out_of_step")]);
    ensure!(refused == Some(1.0), "the broker refused nothing: {refused:?}");
    Ok(())
}

/// Here only commits wake the relay, and it has nothing to publish when the broker comes back empty.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn lost_events_are_republished_before_newer_ones() -> Test {
    let long = Duration::from_secs(600);
    let tuning = Tuning { relay_lease: 2 * long, relay_poll: long, reconcile_every: long, ..Tuning::default() };
    let (suite, inventory) = TestSuite::alone_with(tuning, INVENTORY).await?;
    create_products(&inventory, 0..1).await?;
    in_order_without_gaps(&suite, "INVENTORY", 1).await?;
    let bus = &inventory.app.participant().bus;
    suite.nats.lock().await.kill();
    eventually(async || !bus.is_connected()).await?;
    suite.nats.lock().await.wipe().await?;
    eventually(async || bus.fill().await.is_some()).await?;
    inventory.client.patch("/api/products/P-0", &json!({"name": "newer"})).await?.expect(200)?;
    in_order_without_gaps(&suite, "INVENTORY", 2).await
}

/// As left behind by a database clock that was an hour ahead.
#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_lease_beyond_twice_its_time_is_free() -> Test {
    let suite = TestSuite::new().await?;
    for sql in [
        "update inventory.relay_lease set holder = 'gone', expires_at = now() + interval '1 hour'",
        "insert into inventory.lease (name, holder, expires_at) values ('anything', 'gone', now() + interval '1 hour')",
    ] {
        suite.execute(sql).await?;
    }
    let inventory = suite.start(INVENTORY).await?;
    create_products(&inventory, 0..1).await?;
    in_order_without_gaps(&suite, "INVENTORY", 1).await?;
    let mut conn = inventory.app.participant().pools.work.acquire().await?;
    ensure!(lease::hold(&mut conn, "anything", "me", Duration::from_secs(60)).await?, "it is held for an hour");
    ensure!(!lease::hold(&mut conn, "anything", "another", Duration::from_secs(60)).await?, "no holder is left");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_batch_of_thousands_is_published() -> Test {
    let (suite, inventory) =
        TestSuite::alone_with(Tuning { relay_batch: 6_000, ..Tuning::default() }, INVENTORY).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    let_wait(&suite, 6_500).await?;
    inventory.client.act("/api/admin/relay/resume").await?;
    suite.becomes(PUBLISHED, 6_500).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_backlog_of_an_emptied_broker_leaves_in_large_batches() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    create_products(&inventory, 0..1).await?;
    in_order_without_gaps(&suite, "INVENTORY", 1).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    let_wait(&suite, 500).await?;
    let epoch = "select stream_epoch from inventory.relay_lease";
    let before = suite.number(epoch).await?;
    suite.nats.lock().await.wipe().await?;
    eventually(async || suite.number(epoch).await.is_ok_and(|now| now != before)).await?;
    let sizes = async |what: &'static str| {
        let sum = Scrape::of(&inventory.client).await?.sum(what, &[]);
        anyhow::Ok(sum.unwrap_or_default())
    };
    let (batches, events) = (sizes("outbox_batch_size_count").await?, sizes("outbox_batch_size_sum").await?);
    inventory.client.act("/api/admin/relay/resume").await?;
    eventually(async || sizes("outbox_batch_size_sum").await.is_ok_and(|now| now >= events + 501.0)).await?;
    let batches = sizes("outbox_batch_size_count").await? - batches;
    // One, unless 250 take longer than a quarter of the lease.
    ensure!(batches <= 3.0, "{batches} batches");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_delayed_by_a_clock_ahead_is_published() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    create_products(&inventory, 0..1).await?;
    suite.execute("update inventory.outbox set next_attempt_at = now() + interval '1 hour'").await?;
    inventory.client.act("/api/admin/relay/resume").await?;
    suite.becomes(PUBLISHED, 1).await
}

/// Puts this many events of as many aggregates into inventory's outbox.
async fn let_wait(suite: &TestSuite, events: i32) -> Test {
    let rows = "insert into inventory.outbox
            (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
        select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid,
            'product', n, 1, 'StockReplenished.v1', 'events.inventory.StockReplenished', '{}', '{}'
        from generate_series(1, $1) n";
    sqlx::query(rows).bind(events).execute(&suite.pool).await?;
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_refused_event_is_parked_at_once_and_only_its_followers_wait() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    create_products(&inventory, 0..2).await?;
    let room = room_for_a_short_name(&suite).await?;
    suite.message_size("INVENTORY", room).await?;
    let patch = async |sku: &str, name: String| {
        inventory.client.patch(&format!("/api/products/{sku}"), &json!({"name": name})).await?.expect(200)
    };
    patch("P-0", "é".repeat(200)).await?;
    patch("P-0", "a follower".to_owned()).await?;
    patch("P-1", "another aggregate".to_owned()).await?;
    let parked = inventory.client.until_items("/api/admin/outbox?state=PARKED", 1).await?.remove(0);
    ensure!(parked["aggregate_id"] == "P-0" && parked["attempts"] == 1, "{parked:#}");
    // Of the other aggregate, and created after the follower.
    suite.becomes(format!("{PUBLISHED} where aggregate_id = 'P-1'"), 2).await?;
    ensure!(suite.number(PUBLISHED).await? == 3, "the follower overtook");
    suite.message_size("INVENTORY", -1).await?;
    let path = format!("/api/admin/outbox/{}", parked["event_id"].as_str().unwrap());
    let because = json!({"reason": "the limit is higher"});
    inventory.client.post(&format!("{path}/requeue"), &because).await?.expect(200)?;
    suite.becomes(PUBLISHED, 5).await?;
    in_order_without_gaps(&suite, "INVENTORY", 5).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_relay_says_why_it_cannot_publish_until_it_can() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    suite.stop_reconciler();
    create_products(&inventory, 0..1).await?;
    in_order_without_gaps(&suite, "INVENTORY", 1).await?;
    let relay = inventory.client.get("/api/admin/relay").await?.expect(200)?;
    ensure!(relay["last_failure"].is_null() && relay["last_failure_at"].is_null(), "{relay:#}");
    ensure!(relay["holder"] == inventory.app.participant().holder.as_str(), "not the replica's name: {relay:#}");
    let held = suite.jetstream().await?.get_stream("INVENTORY").await?.cached_info().state.bytes;
    let full = i64::try_from(held)? + 10;
    suite.change_stream("INVENTORY", |config| config.max_bytes = full).await?;
    create_products(&inventory, 1..2).await?;
    let names_it = |relay: &Value| relay["last_failure"].as_str().is_some_and(|why| why.contains("maximum bytes"));
    let relay = inventory.client.until("/api/admin/relay", names_it).await?;
    ensure!(relay["last_failure_at"].is_string() && relay["lag"] == 1, "{relay:#}");
    suite.change_stream("INVENTORY", |config| config.max_bytes = -1).await?;
    let is_over = |relay: &Value| relay["last_failure"].is_null() && relay["last_failure_at"].is_null();
    let relay = inventory.client.until("/api/admin/relay", is_over).await?;
    ensure!(relay["lag"] == 0, "{relay:#}");
    in_order_without_gaps(&suite, "INVENTORY", 2).await
}

/// A size that an event with a short name fits into, and one with a name of 400 bytes does not.
pub(crate) async fn room_for_a_short_name(suite: &TestSuite) -> anyhow::Result<i32> {
    let stream = suite.jetstream().await?.get_stream("INVENTORY").await?;
    let state = &stream.cached_info().state;
    Ok(i32::try_from(state.bytes / state.messages)? + 150)
}

pub(crate) async fn create_products(inventory: &Replica, numbers: std::ops::Range<i64>) -> Test {
    for n in numbers {
        inventory.client.create_product(&format!("P-{n}"), 1, 1).await?.expect(201)?;
    }
    Ok(())
}

/// The events of each aggregate are in the stream in the order of their sequence, without gaps; duplicates count once.
async fn in_order_without_gaps(suite: &TestSuite, stream: &str, distinct: usize) -> Test {
    let jetstream = suite.jetstream().await?;
    eventually(async || {
        let stream = jetstream.get_stream(stream).await?;
        let state = &stream.cached_info().state;
        let mut seen = HashSet::new();
        let mut last = std::collections::HashMap::<String, i64>::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await?;
            let header = |name: &str| message.headers.get(name).map(|v| v.as_str().to_owned()).unwrap_or_default();
            if seen.insert(header("ce-id")) {
                let (aggregate, number) = (header("ce-subject"), header("ce-sequence").parse::<i64>()?);
                let before = last.insert(aggregate.clone(), number).unwrap_or(0);
                ensure!(number == before + 1, "{aggregate}: {number} after {before}");
            }
        }
        ensure!(seen.len() == distinct, "{} events are in the stream", seen.len());
        anyhow::Ok(())
    })
    .await
}
