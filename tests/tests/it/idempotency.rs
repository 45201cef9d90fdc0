//! One key, one order.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::prelude::*;

#[suite_tests::test]
async fn eight_identical_concurrent_requests_place_one_order() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1000).await?;
    let second = suite.start(ORDER).await?;
    let body = order_of(&[("A", 1)], "tok_visa");
    for round in 0..100 {
        let key = format!("key-{round}");
        let place = |copy: usize| {
            let client = if copy.is_multiple_of(2) { &participants.order.client } else { &second.client };
            client.place(&key, &body)
        };
        let answers: Vec<Answer> = join_all((0..8).map(place)).await.into_iter().collect::<Result<_, _>>()?;
        let created = answers.iter().filter(|a| a.status == 201).count();
        let ids: BTreeSet<_> = answers.iter().filter_map(|a| a.body["order_id"].as_str()).collect();
        ensure!(created == 1 && ids.len() == 1, "round {round}: {created} created, {ids:?}");
        for answer in &answers {
            let replayed = answer.header("idempotency-replayed") == Some("true");
            ensure!(matches!(answer.status, 201 | 409) || answer.status == 200 && replayed, "{answer:?}");
        }
        let again = place(0).await?;
        ensure!(again.status == 200 && again.body["order_id"].as_str() == ids.first().copied());
    }
    ensure!(suite.number("select count(*) from orders.customer_order").await? == 100);
    suite.audit().await
}

/// The requests share transactions.
#[suite_tests::test]
async fn each_of_ninety_concurrent_requests_gets_its_own_answer() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1000).await?;
    let client = &participants.order.client;
    let place = async |n: usize| {
        let mut body = order_of(&[(if n.is_multiple_of(3) { "NOPE" } else { "A" }, 1)], "tok_visa");
        body["customer_id"] = json!(format!("customer-{n}"));
        client.place("k", &body).await
    };
    let before = join_all((0..30).map(|n| place(3 * n + 1))).await;
    for (n, answer) in (0..90).zip(join_all((0..90).map(place)).await) {
        let (answer, expected) = (answer?, [422, 200, 201][n % 3]);
        ensure!(answer.status == expected, "request {n}: {answer:?}");
        if expected != 422 {
            ensure!(answer.body["customer_id"] == format!("customer-{n}"), "request {n}: {answer:?}");
        }
        if expected == 200 {
            let first = before[n / 3].as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
            ensure!(answer.body["order_id"] == first.body["order_id"], "request {n}: {answer:?}");
        }
    }
    ensure!(suite.number("select count(*) from orders.customer_order").await? == 60);
    suite.audit().await
}

#[suite_tests::test]
async fn a_key_with_another_body_is_refused() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1000).await?;
    let client = &participants.order.client;
    let place = async |body: Value| client.place("k", &body).await;
    let first = place(order_of(&[("A", 1)], "tok_visa")).await?.expect(201)?;
    ensure!(place(order_of(&[("A", 2)], "tok_visa")).await?.status == 422);
    let mut another = order_of(&[("A", 1)], "tok_visa");
    another["customer_id"] = json!("bob");
    let bobs = place(another).await?.expect(201)?;
    ensure!(first["order_id"] != bobs["order_id"]);
    suite.audit().await
}

#[suite_tests::test]
async fn a_client_that_hangs_up_has_one_order_after_its_retry() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1000).await?;
    let client = &participants.order.client;
    let body = order_of(&[("A", 1)], "tok_visa");
    for round in 0u64..200 {
        let abort_after = Duration::from_micros(round * 50);
        let _ = tokio::time::timeout(abort_after, client.place(&format!("key-{round}"), &body)).await;
    }
    for round in 0..200 {
        client.place_until_accepted(&format!("key-{round}"), &body).await?;
    }
    ensure!(suite.number("select count(*) from orders.customer_order").await? == 200);
    suite.audit().await
}
