//! More than a service can take, on the wire: it keeps answering the others, and is itself again afterwards.

use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::ORDER;
use futures_util::future::join_all;
use reqwest::Method;
use suite_tests::{Client, Running, Stage, order_of};
use testkit::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::Test;

/// Nobody waits longer than this for anything here.
const LIMIT: Duration = Duration::from_secs(20);
const SLOW: Duration = Duration::from_millis(50);

/// A stage with order alone, as a process.
async fn order(settings: &[(&str, &str)]) -> anyhow::Result<(Stage, Running)> {
    let stage = Stage::new().await?;
    let order = Running::start(&stage, ORDER, settings).await?;
    Ok((stage, order))
}

fn address(client: &Client) -> String {
    client.base().trim_start_matches("http://").to_owned()
}

/// Sends the start of a request and then `drip` again and again, until the service hangs up. Returns what it said, and
/// after how long it hung up.
async fn dribble(address: String, start: String, drip: &'static [u8]) -> anyhow::Result<(String, Duration)> {
    let mut stream = TcpStream::connect(&address).await?;
    stream.write_all(start.as_bytes()).await?;
    let began = Instant::now();
    let mut said = Vec::new();
    while began.elapsed() < LIMIT {
        match timeout(SLOW, stream.read_buf(&mut said)).await {
            Ok(Ok(0) | Err(_)) => return Ok((String::from_utf8_lossy(&said).into_owned(), began.elapsed())),
            Ok(Ok(_)) => {}
            // Once the service has answered, what we write may be reset; then the next read tells.
            Err(_) => drop(stream.write_all(drip).await),
        }
    }
    anyhow::bail!("a slow client was never hung up on; it was told {:?}", String::from_utf8_lossy(&said))
}

/// The whole answer to what is sent as it stands.
async fn raw(address: &str, request: &[u8]) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // The service may hang up before it has read everything.
    drop(stream.write_all(request).await);
    let mut said = Vec::new();
    while timeout(LIMIT, stream.read_buf(&mut said)).await.context("no answer")?.is_ok_and(|read| read > 0) {}
    Ok(String::from_utf8_lossy(&said).into_owned())
}

async fn is_answered(client: &Client) -> Test {
    let answer = timeout(LIMIT, client.get("/api/products")).await.context("a polite client waits in vain")??;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn clients_that_dribble_headers_are_hung_up_on() -> Test {
    let settings = [("HTTP_HEADER_READ_TIMEOUT", "1s"), ("HTTP_MAX_CONNECTIONS", "40")];
    let (_stage, order) = order(&settings).await?;
    let start = || "GET /api/products HTTP/1.1\r\nhost: a\r\nx-slow: ".to_owned();
    // Fewer than there are connections, then three times as many: then one has to wait for one's turn, but not for ever.
    for slow in [30, 120] {
        let dribbling: Vec<_> =
            (0..slow).map(|_| tokio::spawn(dribble(address(&order.client), start(), b"x"))).collect();
        for _ in 0..5 {
            is_answered(&Client::new(order.client.base())).await?;
        }
        for ended in join_all(dribbling).await {
            let (said, _) = ended??;
            ensure!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
        }
    }
    is_answered(&order.client).await
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn clients_that_dribble_bodies_are_answered_408() -> Test {
    let settings = [("HTTP_BODY_READ_TIMEOUT", "2s"), ("HTTP_MAX_IN_FLIGHT", "4")];
    let (stage, order) = order(&settings).await?;
    let start =
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    let dribbling: Vec<_> =
        (0..40).map(|_| tokio::spawn(dribble(address(&order.client), start.to_owned(), b" "))).collect();
    for _ in 0..10 {
        is_answered(&order.client).await?;
    }
    for ended in join_all(dribbling).await {
        let (said, took) = ended??;
        ensure!(said.starts_with("HTTP/1.1 408") && said.contains("application/problem+json"), "{said}");
        ensure!(took >= Duration::from_secs(1), "it was not given its time: {took:?}");
    }
    ensure!(stage.number("select count(*) from orders.customer_order").await? == 0);
    is_answered(&order.client).await
}

#[suite_tests::test]
async fn ten_times_what_can_be_served_is_shed_without_an_effect() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    // Nobody reserves, so who is willing to wait for the order's end keeps a place for as long.
    stage.pause(&suite.inventory, "reserve_stock").await?;
    let order = Running::start(&stage, ORDER, &[("HTTP_MAX_IN_FLIGHT", "8")]).await?;
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
    let written = stage.number("select count(*) from orders.customer_order").await?;
    ensure!(written == accepted, "{written} orders, {accepted} accepted");
    is_answered(&order.client).await?;
    stage.resume(&suite.inventory, "reserve_stock").await?;
    let confirmed = "select count(*) from orders.customer_order where status = 'CONFIRMED'";
    stage.becomes(confirmed, accepted).await?;
    stage.audit().await
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn floods_of_headers_are_refused_and_cost_nobody_else_anything() -> Test {
    let (_stage, order) = order(&[]).await?;
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
        for said in answers {
            let said = said?;
            // A connection may be reset before its answer is read, because what was sent is not read to its end.
            let refused =
                ["HTTP/1.1 431", "HTTP/1.1 414", "HTTP/1.1 400"].iter().any(|status| said.starts_with(status));
            ensure!(refused || said.is_empty(), "{}: {said}", &flood[..80]);
        }
        is_answered(&order.client).await?;
    }
    let said = raw(&address, floods[0].as_bytes()).await?;
    ensure!(said.starts_with("HTTP/1.1 431"), "{said}");
    Ok(())
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn requests_that_are_no_http_are_refused_and_leave_no_trace() -> Test {
    let (_stage, order) = order(&[]).await?;
    let address = address(&order.client);
    let body = order_of(&[("A", 1)], "tok_visa").to_string();
    for request in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}".repeat(20),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "GET /api/products HTTP/9.9\r\nhost: a\r\n\r\n".to_owned(),
        "GET /api/products HTTP/1.1\r\nhost : a\r\n\r\n".to_owned(),
        // Two lengths, and a length beside chunks: what smuggling is made of.
        format!("POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n".to_owned(),
        "POST /api/orders HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_owned(),
    ] {
        let said = raw(&address, request.as_bytes()).await?;
        ensure!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{request:?}: {said}");
    }
    is_answered(&order.client).await
}

#[suite_tests::test(unaudited = "order alone is there")]
async fn connections_without_a_request_are_closed_and_make_room() -> Test {
    let settings = [("HTTP_HEADER_READ_TIMEOUT", "1s"), ("HTTP_MAX_CONNECTIONS", "40")];
    let (_stage, order) = order(&settings).await?;
    let address = address(&order.client);
    let connections = join_all((0..200).map(|_| TcpStream::connect(&address))).await;
    is_answered(&Client::new(order.client.base())).await?;
    for connection in connections {
        let mut rest = Vec::new();
        // At its end or reset, but not open for ever.
        let _ = timeout(LIMIT, connection?.read_to_end(&mut rest)).await.context("an idle connection stays open")?;
    }
    is_answered(&order.client).await
}

/// Lists that take as long as if they had to look for their rows among millions.
#[suite_tests::test]
async fn a_storm_of_readers_keeps_nobody_from_placing_orders() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    suite.place(&[("A", 1)], "tok_visa").await?;
    let slow = "alter table orders.customer_order enable row level security;
        create policy slow on orders.customer_order using
            (case when current_query() like '%desc%limit%' then pg_sleep(5) is not null else true end)";
    stage.execute(slow).await?;
    let reader = || {
        let client = suite.order.client.clone();
        tokio::spawn(async move { client.get("/api/orders?status=CANCELLED").await })
    };
    let readers: Vec<_> = (0..30).map(|_| reader()).collect();
    let reading = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    eventually(LIMIT, async || stage.number(reading).await.is_ok_and(|n| n >= 2)).await?;
    for _ in 0..5 {
        suite.place(&[("A", 1)], "tok_visa").await?;
    }
    ensure!(stage.number(reading).await? > 0, "nobody reads any more");
    for answer in join_all(readers).await {
        ensure!(answer??.status == 503, "a list that takes so long is given up");
    }
    stage
        .execute(
            "drop policy slow on orders.customer_order; alter table orders.customer_order disable row level security",
        )
        .await?;
    stage.audit().await
}
