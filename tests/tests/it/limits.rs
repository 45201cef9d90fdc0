//! What happens where there is no room: streams that fill up, and an outbox that nothing leaves.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use contracts::{INVENTORY, ORDER, PAYMENT, consumers};
use saga::Service;
use serde_json::json;
use suite_tests::{Dancers, Scrape, Stage, Tuning, order_of};
use testkit::eventually;

use crate::Test;

async fn place_many(suite: &Dancers, count: usize) -> Test {
    for n in 0..count {
        suite.order.client.insist(&n.to_string(), &order_of(&[("A", 1)], "tok_visa")).await?;
    }
    Ok(())
}

async fn outbox_is_empty(stage: &Stage) -> Test {
    stage.becomes("select count(*) from orders.outbox", 0).await
}

async fn all_confirmed(stage: &Stage, count: i64) -> Test {
    stage.becomes("select count(*) from orders.customer_order where status = 'CONFIRMED'", count).await
}

async fn bytes_of(stage: &Stage, stream: &str) -> anyhow::Result<u64> {
    Ok(stage.jetstream().await?.get_stream(stream).await?.cached_info().state.bytes)
}

/// Three times as many as a stream holds; nobody keeps what all consumers have had.
#[suite_tests::test]
async fn streams_never_fill_while_consumers_take_their_events() -> Test {
    const ROOM: i64 = 300_000;
    let tuning = Tuning { stream_max_bytes: ROOM, ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 100_000).await?;
    place_many(&suite, 500).await?;
    all_confirmed(&stage, 500).await?;
    outbox_is_empty(&stage).await?;
    stage.nothing_was_counted().await?;
    for stream in STREAMS {
        eventually(Duration::from_secs(10), async || {
            let bytes = bytes_of(&stage, stream).await?;
            ensure!(bytes <= (ROOM / 100 * 52).unsigned_abs(), "{stream} holds {bytes} bytes");
            anyhow::Ok(())
        })
        .await?;
    }
    stage.audit().await
}

const STREAMS: [&str; 3] = ["ORDER", "INVENTORY", "PAYMENT"];
const ORDERS: u64 = 20;

/// Orders of three lines, as their customers' traces come in.
async fn place_of_three_lines(suite: &Dancers) -> Test {
    for sku in ["LAPTOP-15", "DOCK-USB-C", "MOUSE-WIRELESS"] {
        suite.sell(sku, 129_900, 1_000).await?;
    }
    for _ in 0..ORDERS {
        let lines = [("LAPTOP-15", 1), ("DOCK-USB-C", 1), ("MOUSE-WIRELESS", 2)];
        let request = suite.order.client.request(reqwest::Method::POST, "/api/orders");
        let request = request.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        suite.order.client.send(request.json(&order_of(&lines, "tok_visa"))).await?.expect(201)?;
    }
    Ok(())
}

/// What the arithmetic of `docs/guarantees.md` relies on; what the products take is counted, too.
async fn each_takes_at_most(stage: &Stage, limit: u64) -> Test {
    for stream in STREAMS {
        let each = bytes_of(stage, stream).await? / ORDERS;
        println!("{stream}: {each} bytes an order");
        ensure!(each <= limit, "{stream}: {each} bytes an order");
    }
    Ok(())
}

#[suite_tests::test]
async fn an_order_of_three_lines_takes_at_most_2400_bytes_of_a_stream() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    place_of_three_lines(&suite).await?;
    all_confirmed(&stage, ORDERS.cast_signed()).await?;
    outbox_is_empty(&stage).await?;
    each_takes_at_most(&stage, 2_400).await?;
    stage.audit().await
}

/// Its first event is published twice, and then its timeout and its cancellation.
#[suite_tests::test(unaudited = "its orders are left without their receipts")]
async fn an_order_never_taken_takes_at_most_4800_bytes_of_a_stream() -> Test {
    let stage = Stage::with(Tuning { saga_deadline: Duration::from_secs(4), ..Tuning::default() }).await?;
    let suite = stage.dancers().await?;
    for step in ["reserve_stock", "release_stock"] {
        stage.pause(&suite.inventory, step).await?;
    }
    place_of_three_lines(&suite).await?;
    let undone = "select count(*) from saga.saga_instance where receipts_due = '{inventory}'";
    stage.becomes(undone, ORDERS.cast_signed()).await?;
    outbox_is_empty(&stage).await?;
    let nudged = stage.number("select count(*) from orders.outbox_published where republication = 1").await?;
    ensure!(nudged == ORDERS.cast_signed(), "{nudged} events were published twice");
    each_takes_at_most(&stage, 4_800).await
}

#[suite_tests::test(unaudited = "the stream is filled by a stranger")]
async fn the_last_tenth_of_a_stream_is_for_cancellations() -> Test {
    tokio::try_join!(
        a_step_takes_no_events_and_their_stream_fills_up(ORDER, "reserve_stock"),
        a_step_takes_no_events_and_their_stream_fills_up(INVENTORY, "process_payment"),
        a_step_takes_no_events_and_their_stream_fills_up(PAYMENT, "confirm_order"),
    )?;
    Ok(())
}

async fn a_step_takes_no_events_and_their_stream_fills_up(publisher: Service, step: &str) -> Test {
    let stage = Stage::with(Tuning { stream_max_bytes: 1_000_000, ..Tuning::default() }).await?;
    let suite = stage.dancers().await?;
    // Whoever asks before the stream is looked at again gets an order, too.
    suite.sell("A", 100, 10_000).await?;
    let taker = match step {
        "reserve_stock" => &suite.inventory,
        "process_payment" => &suite.payment,
        _ => &suite.order,
    };
    stage.pause(taker, step).await?;
    let waiting = suite.place(&[("A", 1)], "tok_visa").await?;
    let jetstream = stage.jetstream().await?;
    let waits = consumers().into_iter().find(|c| c.step.name == step).context("no such step")?.step.consumer();
    eventually(Duration::from_secs(10), async || {
        let info = jetstream.get_stream(publisher.stream()).await?.consumer_info(&waits).await?;
        ensure!(info.num_pending == 1, "the order is not there yet");
        anyhow::Ok(())
    })
    .await?;
    for _ in 0..91 {
        jetstream.publish(format!("events.{publisher}.Filler"), vec![b' '; 10_000].into()).await?.await?;
    }
    let body = order_of(&[("A", 1)], "tok_visa");
    let refused = eventually(Duration::from_secs(10), async || {
        let answer = suite.order.client.post("/api/orders", &body).await?;
        ensure!(answer.status == 503, "{answer:?}");
        anyhow::Ok(Some(answer))
    })
    .await?;
    ensure!(refused.header("retry-after") == Some("10"), "{refused:?}");
    let ready = suite.order.client.get("/health/ready").await?;
    let reason = ready.body["checks"]["placement"]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains(&format!("the stream of {publisher} is almost full")), "{ready:?}");

    ensure!(suite.cancel(&waiting).await? == 202);
    outbox_is_empty(&stage).await?;
    stage.resume(taker, step).await?;
    suite.saga_becomes(&waiting, "COMPENSATED").await?;
    let next = suite.order.client.insist("next", &body).await?;
    suite.saga_becomes(&next, "COMPLETED").await.map(drop)
}

#[suite_tests::test]
async fn orders_are_refused_while_events_wait_for_too_long() -> Test {
    let (stage, suite) = Stage::selling(100, 10).await?;
    let confirmed = suite.confirmed(&[("A", 1)]).await?;
    suite.order.client.post("/api/admin/relay/pause", &json!({})).await?.expect(200)?;
    let waiting = suite.place(&[("A", 1)], "tok_visa").await?;
    ensure!(suite.order.startup.readiness.is_ready(), "a moment is no reason to refuse orders");

    let older = "update orders.outbox set created_at = created_at - interval '31 seconds'";
    stage.execute(older).await?;
    eventually(Duration::from_secs(10), async || !suite.order.startup.readiness.is_ready()).await?;
    let body = order_of(&[("A", 1)], "tok_visa");
    let refused = suite.order.client.post("/api/orders", &body).await?;
    ensure!(refused.status == 503, "{refused:?}");
    ensure!(refused.header("retry-after") == Some("10"), "{refused:?}");
    ensure!(refused.header("content-type") == Some("application/problem+json"), "{refused:?}");
    ensure!(refused.body["detail"].as_str().is_some_and(|d| d.contains("Nothing was placed")), "{refused:?}");
    let ready = suite.order.client.get("/health/ready").await?;
    let reason = ready.body["checks"]["placement"]["reason"].as_str().unwrap_or_default();
    ensure!(ready.status == 503 && reason.contains("an event has waited for 3"), "{ready:?}");
    let shown = Scrape::of(&suite.order.client).await?;
    ensure!(shown.sum("orders_shedding", &[]) == Some(1.0), "the gauge says otherwise");
    ensure!(shown.sum("orders_shed_total", &[]) >= Some(1.0), "the counter says otherwise");

    ensure!(suite.cancel(&waiting).await? == 202, "a cancellation gets through");
    ensure!(suite.cancel(&confirmed).await? == 202);
    ensure!(suite.order(&waiting).await?["status"] == "CANCELLED");
    suite.order.client.post("/api/admin/relay/resume", &json!({})).await?.expect(200)?;
    suite.sagas_become([&waiting, &confirmed], "COMPENSATED").await?;
    eventually(Duration::from_secs(10), async || {
        suite.order.client.post("/api/orders", &body).await.is_ok_and(|answer| answer.status == 201)
    })
    .await?;
    ensure!(stage.number("select count(*) from orders.customer_order").await? == 3, "a refused order was placed");
    eventually(Duration::from_secs(10), async || suite.order.startup.readiness.is_ready()).await?;
    stage.audit().await
}

/// Its order's events wait for an operator; all others get out.
#[suite_tests::test(unaudited = "the parked event is left")]
async fn a_parked_event_keeps_no_orders_out() -> Test {
    let tuning = Tuning { placement_outbox_age: Duration::from_secs(2), ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 10).await?;
    suite.order.client.post("/api/admin/relay/pause", &json!({})).await?.expect(200)?;
    let parked = suite.place(&[("A", 1)], "tok_visa").await?;
    ensure!(suite.cancel(&parked).await? == 202);
    let park = "update orders.outbox
        set created_at = now() - interval '1 hour',
            state = case event_type when 'OrderCreated.v1' then 'PARKED' else 'PENDING' end";
    stage.execute(park).await?;
    suite.order.client.post("/api/admin/relay/resume", &json!({})).await?.expect(200)?;
    let age = messaging::outbox::oldest_waiting(&suite.order.app.participant().pools.work).await?;
    ensure!(age.is_none(), "{age:?}");
    suite.confirmed(&[("A", 1)]).await?;
    // The event that tells its end leaves after it.
    stage.becomes("select count(*) from orders.outbox", 2).await
}

/// As after a full disk: NATS keeps its connections, and JetStream answers nothing.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_silent_broker_is_told_from_one_that_is_away() -> Test {
    let (stage, inventory) = Stage::alone(contracts::INVENTORY).await?;
    let silent = async || Scrape::of(&inventory.client).await.map(|shown| shown.sum("broker_silent", &[]));
    ensure!(silent().await? == Some(0.0));
    let reason = async || -> anyhow::Result<String> {
        let ready = inventory.client.get("/health/ready").await?;
        Ok(ready.body["checks"]["relay"]["reason"].as_str().unwrap_or_default().to_owned())
    };
    stage.nats.lock().await.pause()?;
    inventory.client.create_product("A", 1, 1).await?.expect(201)?;
    eventually(Duration::from_secs(20), async || {
        let reason = reason().await?;
        ensure!(reason.contains("JetStream does not answer") && reason.contains("restart nats"), "{reason}");
        ensure!(silent().await? == Some(1.0), "the gauge says otherwise");
        anyhow::Ok(())
    })
    .await?;
    // In the end the connection is given up, and it is away like any other.
    eventually(Duration::from_secs(30), async || {
        let reason = reason().await?;
        ensure!(!reason.is_empty() && !reason.contains("restart nats"), "{reason:?}");
        ensure!(silent().await? == Some(0.0), "the gauge says otherwise");
        anyhow::Ok(())
    })
    .await?;
    stage.nats.lock().await.resume()?;
    let published = "select count(*) from inventory.outbox_published";
    stage.becomes(published, 1).await?;
    eventually(Duration::from_secs(20), async || inventory.startup.readiness.is_ready()).await?;
    stage.nothing_was_counted().await
}
