//! Overload on the wire: a service keeps answering other clients, and recovers.

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::prelude::*;

/// The longest wait for anything here.
const LIMIT: Duration = Duration::from_secs(20);
const SLOW: Duration = Duration::from_millis(50);

/// A suite with only the order service, as a process.
async fn order(settings: &[(&str, &str)]) -> anyhow::Result<(TestSuite, Running)> {
    let suite = TestSuite::new().await?;
    let order = Running::start(&suite, ORDER, settings).await?;
    Ok((suite, order))
}

fn address(client: &Client) -> String {
    client.base().trim_start_matches("http://").to_owned()
}

/// Sends the start of a request and then `drip` repeatedly, until the service closes the connection. Returns what the service
/// sent, and the time until it closed.
async fn dribble(address: String, start: String, drip: &'static [u8]) -> anyhow::Result<(String, Duration)> {
    let mut stream = TcpStream::connect(&address).await?;
    stream.write_all(start.as_bytes()).await?;
    let began = Instant::now();
    let mut received = Vec::new();
    while began.elapsed() < LIMIT {
        match timeout(SLOW, stream.read_buf(&mut received)).await {
            Ok(Ok(0) | Err(_)) => return Ok((String::from_utf8_lossy(&received).into_owned(), began.elapsed())),
            Ok(Ok(_)) => {}
            // Once the service has answered, a write may fail; then the next read shows the answer.
            Err(_) => drop(stream.write_all(drip).await),
        }
    }
    anyhow::bail!("the connection of a slow client stayed open; it got {:?}", String::from_utf8_lossy(&received))
}

/// The whole answer to a request sent as is.
async fn raw(address: &str, request: &[u8]) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // The service may close the connection before it has read everything.
    drop(stream.write_all(request).await);
    let mut received = Vec::new();
    while timeout(LIMIT, stream.read_buf(&mut received)).await.context("no answer")?.is_ok_and(|read| read > 0) {}
    Ok(String::from_utf8_lossy(&received).into_owned())
}

async fn is_answered(client: &Client) -> Test {
    let answer = timeout(LIMIT, client.get("/api/products")).await.context("a polite client waits in vain")??;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn connections_with_slow_headers_are_closed() -> Test {
    let settings = [("HTTP_HEADER_READ_TIMEOUT", "1s"), ("HTTP_MAX_CONNECTIONS", "40")];
    let (_suite, order) = order(&settings).await?;
    let start = || "GET /api/products HTTP/1.1\r\nhost: a\r\nx-slow: ".to_owned();
    // Fewer than there are connections, then three times as many: then some wait for a free one, but not for ever.
    for slow in [30, 120] {
        let dribbling: Vec<_> =
            (0..slow).map(|_| tokio::spawn(dribble(address(&order.client), start(), b"x"))).collect();
        for _ in 0..5 {
            is_answered(&Client::new(order.client.base())).await?;
        }
        for ended in join_all(dribbling).await {
            let (received, _) = ended??;
            ensure!(received.is_empty() || received.starts_with("HTTP/1.1 408"), "{received}");
        }
    }
    is_answered(&order.client).await
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn slow_bodies_are_answered_with_408() -> Test {
    let settings = [("HTTP_BODY_READ_TIMEOUT", "2s"), ("HTTP_MAX_IN_FLIGHT", "4")];
    let (suite, order) = order(&settings).await?;
    let start =
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    let dribbling: Vec<_> =
        (0..40).map(|_| tokio::spawn(dribble(address(&order.client), start.to_owned(), b" "))).collect();
    for _ in 0..10 {
        is_answered(&order.client).await?;
    }
    for ended in join_all(dribbling).await {
        let (received, took) = ended??;
        ensure!(received.starts_with("HTTP/1.1 408") && received.contains("application/problem+json"), "{received}");
        ensure!(took >= Duration::from_secs(1), "it was not given its time: {took:?}");
    }
    ensure!(suite.number("select count(*) from orders.customer_order").await? == 0);
    is_answered(&order.client).await
}

#[suite_tests::test]
async fn ten_times_the_capacity_is_shed_without_an_effect() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    // No reservation is made, so a request that waits for the order's end occupies its place until then.
    suite.pause(&participants.inventory, "reserve_stock").await?;
    let order = Running::start(&suite, ORDER, &[("HTTP_MAX_IN_FLIGHT", "8")]).await?;
    let place = async || {
        let body = order_of(&[("A", 1)], "tok_visa");
        let request = order.client.request(Method::POST, "/api/orders").header("prefer", "wait=3").json(&body);
        order.client.send(request).await
    };
    let answers = join_all((0..80).map(|_| place())).await;
    let (mut accepted, mut shed) = (0, 0);
    for answer in answers {
        let answer = answer?;
        match answer.status {
            201 => accepted += 1,
            503 => {
                shed += 1;
                ensure!(answer.header("retry-after") == Some("1"), "{answer:?}");
                ensure!(answer.header("content-type") == Some("application/problem+json"), "{answer:?}");
            }
            other => anyhow::bail!("{other}: {answer:?}"),
        }
    }
    ensure!(accepted >= 8 && shed > 0, "{accepted} accepted, {shed} shed");
    let written = suite.number("select count(*) from orders.customer_order").await?;
    ensure!(written == accepted, "{written} orders, {accepted} accepted");
    is_answered(&order.client).await?;
    suite.resume(&participants.inventory, "reserve_stock").await?;
    suite.all_confirmed(accepted).await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn floods_of_headers_are_refused_and_harm_no_other_client() -> Test {
    let (_suite, order) = order(&[]).await?;
    let address = address(&order.client);
    let many: String = (0..1_000).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let floods = [
        format!("GET /api/products HTTP/1.1\r\nhost: a\r\n{many}\r\n"),
        format!("GET /api/products HTTP/1.1\r\nhost: a\r\nx-large: {}\r\n\r\n", "x".repeat(1_000_000)),
        format!("GET /api/products HTTP/1.1\r\nhost: a\r\nx-large: {}\r\n\r\n", "x".repeat(100_000)),
        format!("GET /api/products HTTP/1.1\r\nhost: a\r\n{}: x\r\n\r\n", "x".repeat(100_000)),
        format!("GET /api/products?{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(100_000)),
    ];
    for flood in &floods {
        let answers = join_all((0..20).map(|_| raw(&address, flood.as_bytes()))).await;
        for received in answers {
            let received = received?;
            // A connection may be reset before its answer is read, because the service does not read the rest of the request.
            let refused =
                ["HTTP/1.1 431", "HTTP/1.1 414", "HTTP/1.1 400"].iter().any(|status| received.starts_with(status));
            ensure!(refused || received.is_empty(), "{}: {received}", &flood[..80]);
        }
        is_answered(&order.client).await?;
    }
    let received = raw(&address, floods[0].as_bytes()).await?;
    ensure!(received.starts_with("HTTP/1.1 431"), "{received}");
    Ok(())
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn requests_that_are_no_http_are_refused_without_effect() -> Test {
    let (_suite, order) = order(&[]).await?;
    let address = address(&order.client);
    let body = order_of(&[("A", 1)], "tok_visa").to_string();
    for request in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}".repeat(20),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "GET /api/products HTTP/9.9\r\nhost: a\r\n\r\n".to_owned(),
        "GET /api/products HTTP/1.1\r\nhost : a\r\n\r\n".to_owned(),
        // Two lengths, and a length beside chunks: request smuggling.
        format!("POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n".to_owned(),
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_owned(),
    ] {
        let received = raw(&address, request.as_bytes()).await?;
        ensure!(received.is_empty() || received.starts_with("HTTP/1.1 4"), "{request:?}: {received}");
    }
    is_answered(&order.client).await
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn idle_connections_are_closed_and_free_their_place() -> Test {
    let settings = [("HTTP_HEADER_READ_TIMEOUT", "1s"), ("HTTP_MAX_CONNECTIONS", "40")];
    let (_suite, order) = order(&settings).await?;
    let address = address(&order.client);
    let connections = join_all((0..200).map(|_| TcpStream::connect(&address))).await;
    is_answered(&Client::new(order.client.base())).await?;
    for connection in connections {
        let mut rest = Vec::new();
        // Closed or reset, but not open for ever.
        let _ = timeout(LIMIT, connection?.read_to_end(&mut rest)).await.context("an idle connection stays open")?;
    }
    is_answered(&order.client).await
}

/// Lists that take as long as a scan of millions of rows.
#[suite_tests::test]
async fn many_readers_do_not_keep_orders_from_being_placed() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    participants.place(&[("A", 1)], "tok_visa").await?;
    let slow = "alter table orders.customer_order enable row level security;
        create policy slow on orders.customer_order using
            (case when current_query() like '%desc%limit%' then pg_sleep(5) is not null else true end)";
    suite.execute(slow).await?;
    let reader = || {
        let client = participants.order.client.clone();
        tokio::spawn(async move { client.get("/api/orders?status=CANCELLED").await })
    };
    let readers: Vec<_> = (0..30).map(|_| reader()).collect();
    let reading = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    eventually(async || suite.number(reading).await.is_ok_and(|n| n >= 2)).await?;
    for _ in 0..5 {
        participants.place(&[("A", 1)], "tok_visa").await?;
    }
    ensure!(suite.number(reading).await? > 0, "no list is being read");
    for answer in join_all(readers).await {
        ensure!(answer??.status == 503, "a list that takes so long is given up");
    }
    suite
        .execute(
            "drop policy slow on orders.customer_order; alter table orders.customer_order disable row level security",
        )
        .await?;
    suite.audit().await
}
