//! Full streams, and an outbox that does not drain.

use contracts::consumers;
use saga::Service;

use crate::prelude::*;

async fn outbox_is_empty(suite: &TestSuite) -> Test {
    suite.becomes("select count(*) from orders.outbox", 0).await
}

async fn bytes_of(suite: &TestSuite, stream: &str) -> anyhow::Result<u64> {
    Ok(suite.jetstream().await?.get_stream(stream).await?.cached_info().state.bytes)
}

/// Three times as many events as a stream holds, without the reconciler that removes consumed ones.
#[suite_tests::test]
async fn streams_never_fill_while_consumers_take_their_events() -> Test {
    const ROOM: i64 = 300_000;
    let tuning = Tuning { stream_max_bytes: ROOM, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 100_000).await?;
    participants.order.client.order_many_until_accepted(500).await?;
    suite.all_confirmed(500).await?;
    outbox_is_empty(&suite).await?;
    suite.nothing_was_counted().await?;
    for stream in STREAMS {
        eventually(async || {
            let bytes = bytes_of(&suite, stream).await?;
            ensure!(bytes <= (ROOM / 100 * 52).unsigned_abs(), "{stream} holds {bytes} bytes");
            anyhow::Ok(())
        })
        .await?;
    }
    suite.audit().await
}

const STREAMS: [&str; 3] = ["ORDER", "INVENTORY", "PAYMENT"];
const ORDERS: u64 = 20;

/// Orders of three lines, with their customers' traces.
async fn place_of_three_lines(participants: &Participants) -> Test {
    for sku in ["LAPTOP-15", "DOCK-USB-C", "MOUSE-WIRELESS"] {
        participants.sell(sku, 129_900, 1_000).await?;
    }
    for _ in 0..ORDERS {
        let lines = [("LAPTOP-15", 1), ("DOCK-USB-C", 1), ("MOUSE-WIRELESS", 2)];
        let request = participants.order.client.request(Method::POST, "/api/orders");
        let request = request.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        participants.order.client.send(request.json(&order_of(&lines, "tok_visa"))).await?.expect(201)?;
    }
    Ok(())
}

/// The figures behind the arithmetic of `docs/guarantees.md`, products included.
async fn each_takes_at_most(suite: &TestSuite, limit: u64) -> Test {
    for stream in STREAMS {
        let each = bytes_of(suite, stream).await? / ORDERS;
        println!("{stream}: {each} bytes an order");
        ensure!(each <= limit, "{stream}: {each} bytes an order");
    }
    Ok(())
}

#[suite_tests::test]
async fn an_order_of_three_lines_takes_at_most_2400_bytes_of_a_stream() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    place_of_three_lines(&participants).await?;
    suite.all_confirmed(ORDERS.cast_signed()).await?;
    outbox_is_empty(&suite).await?;
    each_takes_at_most(&suite, 2_400).await?;
    suite.audit().await
}

/// Its first event is published twice, then its timeout and its cancellation.
#[suite_tests::test(unaudited = "its orders are left without undo confirmations")]
async fn an_order_never_taken_takes_at_most_4800_bytes_of_a_stream() -> Test {
    let suite = TestSuite::with(Tuning { saga_deadline: Duration::from_secs(4), ..Tuning::default() }).await?;
    let participants = suite.participants().await?;
    for step in ["reserve_stock", "release_stock"] {
        suite.pause(&participants.inventory, step).await?;
    }
    place_of_three_lines(&participants).await?;
    let undone = "select count(*) from saga.saga_instance where receipts_due = '{inventory}'";
    suite.becomes(undone, ORDERS.cast_signed()).await?;
    outbox_is_empty(&suite).await?;
    let nudged = suite.number("select count(*) from orders.outbox_published where republication = 1").await?;
    ensure!(nudged == ORDERS.cast_signed(), "{nudged} events were published twice");
    each_takes_at_most(&suite, 4_800).await
}

#[suite_tests::test(unaudited = "the stream is filled with foreign messages")]
async fn the_last_tenth_of_a_stream_is_kept_for_cancellations() -> Test {
    tokio::try_join!(
        a_step_takes_no_events_and_their_stream_fills_up(ORDER, "reserve_stock"),
        a_step_takes_no_events_and_their_stream_fills_up(INVENTORY, "process_payment"),
        a_step_takes_no_events_and_their_stream_fills_up(PAYMENT, "confirm_order"),
    )?;
    Ok(())
}

async fn a_step_takes_no_events_and_their_stream_fills_up(publisher: Service, step: &str) -> Test {
    let tuning = Tuning { stream_max_bytes: 1_000_000, ..Tuning::default() };
    // Orders placed before the next check of the stream are accepted, too.
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10_000).await?;
    let taker = match step {
        "reserve_stock" => &participants.inventory,
        "process_payment" => &participants.payment,
        _ => &participants.order,
    };
    suite.pause(taker, step).await?;
    let waiting = participants.place(&[("A", 1)], "tok_visa").await?;
    let jetstream = suite.jetstream().await?;
    let waits = consumers().into_iter().find(|c| c.step.name == step).context("no such step")?.step.consumer();
    eventually(async || {
        let info = jetstream.get_stream(publisher.stream()).await?.consumer_info(&waits).await?;
        anyhow::Ok(info.num_pending == 1)
    })
    .await?;
    for _ in 0..91 {
        jetstream.publish(format!("events.{publisher}.Filler"), vec![b' '; 10_000].into()).await?.await?;
    }
    let body = order_of(&[("A", 1)], "tok_visa");
    let refused = eventually(async || {
        let answer = participants.order.client.post("/api/orders", &body).await?;
        ensure!(answer.status == 503, "{answer:?}");
        anyhow::Ok(Some(answer))
    })
    .await?;
    ensure!(refused.header("retry-after") == Some("10"), "{refused:?}");
    let reason = participants.order.client.unready("placement").await?;
    ensure!(reason.contains(&format!("the stream of {publisher} is almost full")), "{reason}");

    ensure!(participants.cancel(&waiting).await? == 202);
    outbox_is_empty(&suite).await?;
    suite.resume(taker, step).await?;
    participants.saga_becomes(&waiting, "COMPENSATED").await?;
    let next = participants.order.client.place_until_accepted("next", &body).await?;
    participants.saga_becomes(&next, "COMPLETED").await.map(drop)
}

#[suite_tests::test]
async fn orders_are_refused_while_the_outbox_is_stale() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let body = order_of(&[("A", 1)], "tok_visa");
    let confirmed = participants.order.client.place_until_accepted("before", &body).await?;
    participants.saga_becomes(&confirmed, "COMPLETED").await?;
    participants.order.client.act("/api/admin/relay/pause").await?;
    let waiting = participants.place(&[("A", 1)], "tok_visa").await?;
    ensure!(participants.order.startup.readiness.is_ready(), "a moment is no reason to refuse orders");

    suite.execute("update orders.outbox set created_at = created_at - interval '31 seconds'").await?;
    eventually(async || !participants.order.startup.readiness.is_ready()).await?;
    let client = &participants.order.client;
    for refused in [client.post("/api/orders", &body).await?, client.place("after", &body).await?] {
        ensure!(refused.status == 503, "{refused:?}");
        ensure!(refused.header("retry-after") == Some("10"), "{refused:?}");
        ensure!(refused.header("content-type") == Some("application/problem+json"), "{refused:?}");
        ensure!(refused.body["detail"].as_str().is_some_and(|d| d.contains("has placed nothing")), "{refused:?}");
    }
    let repeated = client.place("before", &body).await?;
    ensure!(repeated.status == 200 && repeated.body["order_id"] == confirmed["order_id"], "{repeated:?}");
    let reason = participants.order.client.unready("placement").await?;
    ensure!(reason.contains("an event has waited for 3"), "{reason}");
    let shown = Scrape::of(&participants.order.client).await?;
    ensure!(shown.sum("orders_shedding", &[]) == Some(1.0), "the gauge differs");
    ensure!(shown.sum("orders_shed_total", &[]) == Some(2.0), "the counter differs");

    ensure!(participants.cancel(&waiting).await? == 202, "a cancellation gets through");
    ensure!(participants.cancel(&confirmed).await? == 202);
    ensure!(participants.order(&waiting).await?["status"] == "CANCELLED");
    participants.order.client.act("/api/admin/relay/resume").await?;
    participants.sagas_become([&waiting, &confirmed], "COMPENSATED").await?;
    eventually(async || client.post("/api/orders", &body).await.is_ok_and(|answer| answer.status == 201)).await?;
    ensure!(suite.number("select count(*) from orders.customer_order").await? == 3, "a refused order was placed");
    eventually(async || participants.order.startup.readiness.is_ready()).await?;
    suite.audit().await
}

/// One order's events are parked; all others are published.
#[suite_tests::test(unaudited = "the parked event is left")]
async fn a_parked_event_blocks_no_new_orders() -> Test {
    let tuning = Tuning { placement_outbox_age: Duration::from_secs(2), ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    participants.order.client.act("/api/admin/relay/pause").await?;
    let parked = participants.place(&[("A", 1)], "tok_visa").await?;
    ensure!(participants.cancel(&parked).await? == 202);
    let park = "update orders.outbox
        set created_at = now() - interval '1 hour',
            state = case event_type when 'OrderCreated.v1' then 'PARKED' else 'PENDING' end";
    suite.execute(park).await?;
    participants.order.client.act("/api/admin/relay/resume").await?;
    let age = messaging::outbox::oldest_waiting(&participants.order.app.participant().pools.work).await?;
    ensure!(age.is_none(), "{age:?}");
    participants.confirmed(&[("A", 1)]).await?;
    // The event of its end is published after it.
    suite.becomes("select count(*) from orders.outbox", 2).await
}

/// As after a full disk: NATS keeps its connections, and JetStream does not answer.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_silent_broker_is_distinguished_from_a_dead_one() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    ensure!(Scrape::of(&inventory.client).await?.sum("broker_silent", &[]) == Some(0.0));
    let shows = async |gauge: f64, fits: fn(&str) -> bool| {
        let (reason, shown) = (inventory.client.unready("relay").await?, Scrape::of(&inventory.client).await?);
        ensure!(fits(&reason), "{reason:?}");
        ensure!(shown.sum("broker_silent", &[]) == Some(gauge), "the gauge differs");
        anyhow::Ok(())
    };
    suite.nats.lock().await.pause()?;
    inventory.client.create_product("A", 1, 1).await?.expect(201)?;
    let silent = |reason: &str| reason.contains("JetStream does not answer") && reason.contains("restart nats");
    eventually(async || shows(1.0, silent).await).await?;
    // At last the connection is given up, and the broker counts as unreachable.
    let dead = |reason: &str| !reason.is_empty() && !reason.contains("restart nats");
    eventually(async || shows(0.0, dead).await).await?;
    suite.nats.lock().await.resume()?;
    suite.becomes("select count(*) from inventory.outbox_published", 1).await?;
    eventually(async || inventory.startup.readiness.is_ready()).await?;
    suite.nothing_was_counted().await
}
