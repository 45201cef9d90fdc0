//! What happens where there is no room: streams that fill up, and an outbox that nothing leaves.

use std::time::Duration;

use anyhow::ensure;
use suite_tests::{Dancers, Stage, Tuning, order_of};
use testkit::eventually;

use crate::Test;

async fn place_many(suite: &Dancers, count: usize) -> Test {
    for n in 0..count {
        suite.order.client.insist(&n.to_string(), &order_of(&[("A", 1)], "tok_visa")).await?;
    }
    Ok(())
}

async fn outbox_is_empty(stage: &Stage) -> Test {
    eventually(Duration::from_secs(20), async || {
        let waiting = stage.number("select count(*) from orders.outbox").await?;
        ensure!(waiting == 0, "{waiting} events wait");
        anyhow::Ok(())
    })
    .await
}

async fn all_confirmed(stage: &Stage, count: i64) -> Test {
    eventually(Duration::from_secs(40), async || {
        let confirmed = stage.number("select count(*) from orders.customer_order where status = 'CONFIRMED'").await?;
        ensure!(confirmed == count, "{confirmed} of {count} orders are confirmed");
        anyhow::Ok(())
    })
    .await
}

async fn bytes_of(stage: &Stage, stream: &str) -> anyhow::Result<u64> {
    Ok(stage.jetstream().await?.get_stream(stream).await?.cached_info().state.bytes)
}

/// Three times as many as a stream holds; nobody keeps what all consumers have had.
#[tokio::test]
async fn streams_take_orders_without_end_as_long_as_consumers_take_their_events() -> Test {
    const ROOM: i64 = 300_000;
    let stage = Stage::with(Tuning { stream_max_bytes: ROOM, ..Tuning::default() }).await?;
    let suite = stage.dancers().await?;
    suite.sell("A", 100, 100_000).await?;
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

#[tokio::test]
async fn an_order_of_three_lines_takes_at_most_2400_bytes_of_any_stream() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    place_of_three_lines(&suite).await?;
    all_confirmed(&stage, ORDERS.cast_signed()).await?;
    outbox_is_empty(&stage).await?;
    each_takes_at_most(&stage, 2_400).await
}

/// Its first event is published twice, and then its timeout and its cancellation.
#[tokio::test]
async fn an_order_that_inventory_never_takes_takes_at_most_4800_bytes_of_any_stream() -> Test {
    let stage = Stage::with(Tuning { saga_deadline: Duration::from_secs(4), ..Tuning::default() }).await?;
    let suite = stage.dancers().await?;
    for step in ["reserve_stock", "release_stock"] {
        stage.pause(&suite.inventory, step).await?;
    }
    place_of_three_lines(&suite).await?;
    let undone = "select count(*) from saga.saga_instance where receipts_due = '{inventory}'";
    eventually(Duration::from_secs(20), async || stage.number(undone).await.is_ok_and(|n| n == ORDERS.cast_signed()))
        .await?;
    outbox_is_empty(&stage).await?;
    let nudged = stage.number("select count(*) from orders.outbox_published where republication = 1").await?;
    ensure!(nudged == ORDERS.cast_signed(), "{nudged} events were published twice");
    each_takes_at_most(&stage, 4_800).await
}
