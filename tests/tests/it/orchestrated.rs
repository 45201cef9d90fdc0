//! The orchestrated twin of the saga: a coordinator commands the steps. Same orders, same audit.

mod clock;
mod killed;
mod late;
mod stored;
mod waits;

use testkit::free_port;
use tokio::task::JoinSet;

use crate::prelude::*;

const PLACE: &str = "/api/orders/orchestrated";

/// Places an order, and returns the answer to the customer.
async fn place(order: &Client, token: &str) -> anyhow::Result<Answer> {
    order.post(PLACE, &order_of(&[("A", 3)], token)).await
}

/// The same, as often as the coordinator is behind.
async fn place_once_admitted(order: &Client) -> anyhow::Result<Answer> {
    loop {
        let answer = place(order, "tok_visa").await?;
        if answer.status != 503 {
            return Ok(answer);
        }
        // A client's pause.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// So many at the same time.
fn place_many(order: &Client, many: usize) -> JoinSet<anyhow::Result<Answer>> {
    let place = |client: Client| async move { place_once_admitted(&client).await };
    (0..many).map(|_| place(order.clone())).collect()
}

/// The order that was placed last.
async fn last_order(order: &Client) -> anyhow::Result<Value> {
    let orders = order.items("/api/orders?limit=1").await?;
    orders.into_iter().next().context("there is no order")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn steps_of(saga: &Value) -> Vec<(&str, &str)> {
    saga["steps"].as_array().into_iter().flatten().map(|s| (text(&s["step"]), text(&s["status"]))).collect()
}

#[suite_tests::test]
async fn a_paid_order_is_answered_when_it_is_confirmed() -> Test {
    let (suite, participants) = TestSuite::selling(1_250, 10).await?;
    let placed = place(&participants.order.client, "tok_visa").await?;
    ensure!(placed.header("location").is_some_and(|at| at.starts_with("/api/orders/")));
    let order = placed.expect(201)?;
    ensure!(order["status"] == "CONFIRMED", "{order}");
    let saga = participants.saga(&order).await?;
    ensure!(saga["saga_type"] == "OrderFulfillmentOrchestrated" && saga["status"] == "COMPLETED", "{saga:#}");
    let taken = ["create_order", "reserve_stock", "process_payment", "confirm_order"].map(|step| (step, "COMPLETED"));
    ensure!(steps_of(&saga) == taken, "{saga:#}");
    ensure!(participants.product("A").await?["reserved"] == 3);
    let payment = participants.payment_of(&order).await?.unwrap();
    ensure!(payment["status"] == "CAPTURED" && payment["amount"]["amount"] == 3_750, "{payment}");
    for schema in ["orders", "inventory", "payment"] {
        let published = format!(
            "select (select count(*) from {schema}.outbox where saga_id is not null)
                + (select count(*) from {schema}.outbox_published where saga_id is not null)"
        );
        ensure!(suite.number(published).await? == 0, "a coordinated step publishes nothing");
    }
    ensure!(suite.number("select count(*) from saga.coordination").await? == 0, "nobody drives an ended saga");
    suite.audit().await
}

#[suite_tests::test]
async fn a_refused_card_is_answered_with_its_reason_and_undone_in_reverse() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let refused = place(&participants.order.client, "tok_declined").await?.expect(409)?;
    ensure!(
        refused["detail"].as_str().is_some_and(|why| why.contains("the payment was refused: card_declined")),
        "{refused}"
    );
    let order = last_order(&participants.order.client).await?;
    let saga = participants.saga_becomes(&order, "COMPENSATED").await?;
    ensure!(saga["failed_at_step"] == "process_payment", "{saga:#}");
    let taken = [
        ("create_order", "COMPLETED"),
        ("reserve_stock", "COMPLETED"),
        ("process_payment", "FAILED"),
        ("cancel_order", "COMPLETED"),
        ("refund_payment", "COMPENSATED"),
        ("release_stock", "COMPENSATED"),
    ];
    ensure!(steps_of(&saga) == taken, "{saga:#}");
    ensure!(order["status"] == "CANCELLED" && participants.product("A").await?["available"] == 10);
    suite.audit().await
}

#[suite_tests::test]
async fn an_order_that_cannot_be_filled_is_answered_with_what_is_missing() -> Test {
    let (suite, participants) = TestSuite::selling(100, 2).await?;
    let refused = place(&participants.order.client, "tok_visa").await?.expect(409)?;
    ensure!(
        refused["detail"].as_str().is_some_and(|why| why.contains("A is out of stock: 3 wanted, 2 available")),
        "{refused}"
    );
    let saga = participants.saga_becomes(&last_order(&participants.order.client).await?, "COMPENSATED").await?;
    ensure!(saga["failed_at_step"] == "reserve_stock", "{saga:#}");
    ensure!(suite.money_kept().await? == 0);
    suite.audit().await
}

/// A suite whose order service calls payment where it is not, and that address. Compensations are driven again after so long.
async fn with_payment_away(compensation_deadline: Duration) -> anyhow::Result<(TestSuite, Participants, String)> {
    let tuning = Tuning {
        compensation_deadline,
        resilience: "process_payment.time_limit=1s,refund_payment.attempts=1",
        ..Tuning::default()
    };
    let suite = TestSuite::with(tuning).await?;
    let inventory = suite.start(INVENTORY).await?;
    let away = format!("127.0.0.1:{}", free_port());
    let order = suite.start_calling(ORDER, faults::Faults::none(), [&inventory.url, &format!("http://{away}")]).await?;
    let participants = Participants::of(order, inventory, suite.start(PAYMENT).await?);
    participants.sell("A", 100, 10).await?;
    Ok((suite, participants, away))
}

/// Payment is away for longer than its step may take; its undo succeeds when it is back.
#[suite_tests::test]
async fn a_participant_that_is_away_fails_the_step_and_is_undone_when_it_is_back() -> Test {
    let (suite, participants, away) = with_payment_away(Duration::from_secs(2)).await?;
    let client = participants.order.client.clone();
    let placing = tokio::spawn(async move { place(&client, "tok_visa").await });
    let order = eventually(async || last_order(&participants.order.client).await.map(Some)).await?;
    let saga = participants.saga_becomes(&order, "COMPENSATING").await?;
    ensure!(saga["failed_at_step"] == "process_payment", "{saga:#}");
    suite.becomes("select compensation_attempts::bigint from saga.saga_instance", 1).await?;
    let _payment = Running::at(&suite, PAYMENT, &away).await?;
    let saga = participants.saga_becomes(&order, "COMPENSATED").await?;
    ensure!(steps_of(&saga).contains(&("drive_compensation", "COMPLETED")), "{saga:#}");
    placing.await??.expect(409)?;
    ensure!(suite.money_kept().await? == 0 && participants.product("A").await?["available"] == 10);
    suite.audit().await
}

#[suite_tests::test]
async fn a_saga_past_its_deadline_times_out() -> Test {
    let tuning = Tuning { saga_deadline: Duration::from_secs(2), ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    participants
        .order
        .arm(&json!({"point": "participant_call", "kind": "hang", "scope": {"step": "process_payment"}}))
        .await?;
    let refused = place(&participants.order.client, "tok_visa").await?.expect(409)?;
    ensure!(refused["detail"].as_str().is_some_and(|why| why.contains("no end by the deadline")), "{refused}");
    let saga = participants.saga_becomes(&last_order(&participants.order.client).await?, "COMPENSATED").await?;
    ensure!(saga["failed_at_step"] == "detect_timeout", "{saga:#}");
    let shown = Scrape::of(&participants.order.client).await?;
    ensure!(shown.sum("orders_cancelled_total", &[("reason", "timed_out")]) == Some(1.0), "it is not counted once");
    suite.audit().await
}

#[suite_tests::test]
async fn a_lost_answer_is_asked_for_again_and_has_one_effect() -> Test {
    let tuning = Tuning { resilience: "reserve_stock.initial=10ms,process_payment.initial=10ms", ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    for (step, kind) in [("reserve_stock", "drop"), ("process_payment", "error")] {
        let lost = json!({"point": "after_call_before_transition", "kind": kind, "first": 2, "scope": {"step": step}});
        participants.order.arm(&lost).await?;
    }
    let twice =
        json!({"point": "participant_call", "kind": "duplicate", "first": 1, "scope": {"step": "process_payment"}});
    participants.order.arm(&twice).await?;
    place(&participants.order.client, "tok_visa").await?.expect(201)?;
    ensure!(suite.money_kept().await? == 300 && participants.product("A").await?["reserved"] == 3);
    let commands = Scrape::of(&participants.order.client).await?;
    let failed = |step| commands.sum("coordinator_commands_total", &[("step", step), ("outcome", "failed")]);
    ensure!(failed("reserve_stock") == Some(2.0) && failed("process_payment") == Some(2.0));
    suite.audit().await
}

#[suite_tests::test]
async fn a_breaker_of_commands_opens_and_closes_again() -> Test {
    let resilience = "process_payment.open_for=300ms,process_payment.initial=20ms,process_payment.max=100ms";
    let (suite, participants) = TestSuite::faulty(Tuning { resilience, ..Tuning::default() }, 100, 10).await?;
    let fails = json!({"point": "participant_call", "kind": "error", "first": 6, "scope": {"step": "process_payment"}});
    participants.order.arm(&fails).await?;
    // As many as it probes with.
    for _ in 0..3 {
        place(&participants.order.client, "tok_visa").await?.expect(201)?;
    }
    let breaker = participants.order.breaker("process_payment").await?;
    ensure!(breaker["state"] == "closed", "{breaker:#}");
    let commands = Scrape::of(&participants.order.client).await?;
    let refused =
        commands.sum("coordinator_commands_total", &[("step", "process_payment"), ("outcome", "not_admitted")]);
    ensure!(refused.is_some_and(|count| count >= 1.0), "the breaker has not opened");
    suite.audit().await
}

/// What a coordinator that was given up commands late does nothing.
#[suite_tests::test]
async fn the_command_of_a_step_that_was_undone_is_refused() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = place(&participants.order.client, "tok_visa").await?.expect(201)?;
    ensure!(participants.cancel(&order).await? == 202);
    participants.saga_becomes(&order, "COMPENSATED").await?;
    let unknown = json!({"saga_id": Uuid::now_v7(), "order_id": Uuid::now_v7()});
    for ids in [&order, &unknown] {
        let (saga_id, order_id) = (&ids["saga_id"], &ids["order_id"]);
        let price = json!({"amount": 100, "currency": "USD"});
        let lines = json!([{"sku": "A", "quantity": 3, "unit_price": price}]);
        let reserve = json!({"saga_id": saga_id, "order_id": order_id, "lines": lines});
        let release = json!({"saga_id": saga_id, "order_id": order_id});
        let charge = json!({"saga_id": saga_id, "order_id": order_id, "total": price, "payment_method": "tok_visa"});
        let (inventory, payment) = (&participants.inventory.client, &participants.payment.client);
        for _ in 0..2 {
            let done = inventory.post("/api/saga/inventory/release-stock", &release).await?.expect(200)?;
            ensure!(done["outcome"] == "DONE", "{done}");
            let late = inventory.post("/api/saga/inventory/reserve-stock", &reserve).await?.expect(200)?;
            ensure!(late["outcome"] == "REFUSED" && late["reason"] == "the order was cancelled", "{late}");
            let done = payment.post("/api/saga/payment/refund", &charge).await?.expect(200)?;
            ensure!(done["outcome"] == "DONE", "{done}");
            let late = payment.post("/api/saga/payment/process", &charge).await?.expect(200)?;
            ensure!(late["outcome"] == "REFUSED" && late["reason"] == "the order was cancelled", "{late}");
        }
        let mut other = charge.clone();
        other["saga_id"] = json!(Uuid::now_v7());
        payment.post("/api/saga/payment/process", &other).await?.expect(422)?;
    }
    ensure!(suite.money_kept().await? == 0 && participants.product("A").await?["available"] == 10);
    suite.audit().await
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn commands_need_the_token() -> Test {
    let suite = TestSuite::new().await?;
    let (inventory, payment) = (suite.start(INVENTORY).await?, suite.start(PAYMENT).await?);
    for (replica, path) in [
        (&inventory, "/api/saga/inventory/reserve-stock"),
        (&inventory, "/api/saga/inventory/release-stock"),
        (&payment, "/api/saga/payment/process"),
        (&payment, "/api/saga/payment/refund"),
    ] {
        let answer = reqwest::Client::new().post(format!("{}{path}", replica.url)).json(&json!({})).send().await?;
        ensure!(answer.status() == 401, "{path}: {}", answer.status());
        // With it the command is read.
        replica.client.post(path, &json!({})).await?.expect(422)?;
    }
    Ok(())
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn less_than_nothing_is_neither_charged_nor_refunded() -> Test {
    let suite = TestSuite::new().await?;
    let payment = suite.start(PAYMENT).await?;
    let id = "01930000-0000-7000-8000-000000000001";
    let total = json!({"amount": -1, "currency": "USD"});
    let command = json!({"saga_id": id, "order_id": id, "total": total, "payment_method": "tok_visa"});
    for path in ["/api/saga/payment/process", "/api/saga/payment/refund"] {
        payment.client.post(path, &command).await?.expect(422)?;
    }
    Ok(())
}

/// The order is written, and whoever wrote it does not know: nobody has its saga driven.
#[suite_tests::test]
async fn a_saga_whose_beginning_got_no_answer_is_driven() -> Test {
    let tuning = Tuning { resilience: "reserve_stock.time_limit=6s", ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    let lost =
        json!({"point": "after_commit_before_publish", "kind": "error", "first": 1, "scope": {"step": "create_order"}});
    participants.order.arm(&lost).await?;
    place(&participants.order.client, "tok_visa").await?.expect(503)?;
    suite.all_confirmed(1).await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_key_places_one_order_of_one_kind() -> Test {
    let (suite, participants) = TestSuite::selling(100, 100).await?;
    let client = &participants.order.client;
    let place = async |path: &str, key: &str, token: &str| {
        let request = client.request(Method::POST, path).header("idempotency-key", key);
        client.send(request.json(&order_of(&[("A", 1)], token))).await
    };
    let first = place(PLACE, "one", "tok_visa").await?.expect(201)?;
    let again = place(PLACE, "one", "tok_visa").await?;
    ensure!(again.header("idempotency-replayed") == Some("true"));
    ensure!(again.expect(200)?["order_id"] == first["order_id"]);
    place("/api/orders", "one", "tok_visa").await?.expect(422)?;
    for _ in 0..2 {
        let refused = place(PLACE, "two", "tok_declined").await?.expect(409)?;
        ensure!(refused["detail"].as_str().is_some_and(|why| why.contains("card_declined")), "{refused}");
    }
    ensure!(suite.number("select count(*) from orders.customer_order").await? == 2);
    suite.audit().await
}

#[suite_tests::test]
async fn a_customer_cancels_while_the_saga_runs_and_an_operator_resumes_it_when_it_failed() -> Test {
    let tuning = Tuning {
        compensation_deadline: Duration::from_millis(50),
        resilience: "refund_payment.attempts=1,refund_payment.open_for=10ms",
        ..Tuning::default()
    };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    let away = json!({"point": "participant_call", "kind": "error", "scope": {"step": "refund_payment"}});
    let fault = participants.order.arm(&away).await?;
    let held = json!({"point": "participant_call", "kind": "latency", "latency_ms": 4_000, "first": 1, "scope": {"step": "process_payment"}});
    participants.order.arm(&held).await?;
    let client = participants.order.client.clone();
    let placing = tokio::spawn(async move { place(&client, "tok_visa").await });
    let order = eventually(async || last_order(&participants.order.client).await.map(Some)).await?;
    participants.saga_becomes(&order, "IN_PROGRESS").await?;
    ensure!(participants.cancel(&order).await? == 202);
    let saga = participants.saga_becomes(&order, "FAILED").await?;
    ensure!(saga["failed_at_step"] == "cancel_order_on_request", "{saga:#}");
    placing.await??.expect(409)?;
    participants.order.client.delete(&format!("/api/admin/faults/{fault}"), &json!({})).await?;
    let path = format!("/api/admin/sagas/{}/resume", order["saga_id"].as_str().unwrap());
    participants.order.client.post(&path, &json!({"reason": "payment is back"})).await?.expect(200)?;
    participants.saga_becomes(&order, "COMPENSATED").await?;
    ensure!(suite.money_kept().await? == 0 && participants.product("A").await?["available"] == 10);
    suite.audit().await
}

/// Both kinds of orders compete for the last units.
#[suite_tests::test]
async fn both_kinds_of_orders_share_stock_and_money() -> Test {
    let (suite, participants) = TestSuite::selling(100, 30).await?;
    let mut placing = tokio::task::JoinSet::new();
    for number in 0..40 {
        let client = participants.order.client.clone();
        let token = if number % 5 == 0 { "tok_declined" } else { "tok_visa" };
        let path = if number % 2 == 0 { PLACE } else { "/api/orders" };
        placing.spawn(async move { client.post(path, &order_of(&[("A", 1)], token)).await });
    }
    while let Some(placed) = placing.join_next().await {
        ensure!(matches!(placed??.status, 201 | 409));
    }
    suite.all_ended().await?;
    let confirmed = suite.number(CONFIRMED).await?;
    ensure!(suite.money_kept().await? == confirmed * 100);
    ensure!(participants.product("A").await?["reserved"] == confirmed);
    suite.audit().await
}
