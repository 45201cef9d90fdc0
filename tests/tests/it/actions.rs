//! What operators do over the administration is recorded: who, what, why, and the answer.

use crate::prelude::*;

type Recorded = (String, String, String, Option<String>, Option<i16>);

async fn recorded(suite: &TestSuite) -> anyhow::Result<Vec<Recorded>> {
    let query =
        sqlx::query_as("select service, actor, action, reason, status from saga.operator_action order by action_id");
    Ok(query.fetch_all(&suite.pool).await?)
}

/// Sends an action as this operator.
async fn act(replica: &Replica, method: Method, path: &str, body: &Value) -> anyhow::Result<u16> {
    let request = replica.client.request(method, path).header("x-actor", "ann").json(body);
    Ok(replica.client.send(request).await?.status)
}

#[suite_tests::test]
async fn each_action_is_recorded_once_and_reading_is_not() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let (order, payment) = (&participants.order, &participants.payment);
    for path in
        ["/api/admin/relay", "/api/admin/dlq", "/api/admin/consumers", "/api/admin/outbox", "/api/admin/breakers"]
    {
        order.client.get(path).await?.expect(200)?;
    }
    participants.confirmed(&[("A", 1)]).await?;
    ensure!(recorded(&suite).await?.is_empty(), "reading and ordering are no actions");
    let saga = Uuid::now_v7();
    let because = json!({"reason": "mended"});
    ensure!(act(payment, Method::POST, "/api/admin/relay/pause", &because).await? == 200);
    ensure!(act(payment, Method::POST, "/api/admin/relay/resume", &json!({})).await? == 200);
    ensure!(act(order, Method::POST, &format!("/api/admin/sagas/{saga}/resume"), &because).await? == 404);
    ensure!(act(order, Method::DELETE, &format!("/api/admin/dlq/{saga}"), &because).await? == 404);
    ensure!(act(order, Method::POST, "/api/admin/nothing", &because).await? == 404, "an unknown route");
    let row = |service: &str, action: &str, reason: Option<&str>, status| {
        (service.to_owned(), "ann".to_owned(), action.to_owned(), reason.map(str::to_owned), Some(status))
    };
    let expected = [
        row("payment", "POST /api/admin/relay/pause", Some("mended"), 200),
        row("payment", "POST /api/admin/relay/resume", None, 200),
        row("order", &format!("POST /api/admin/sagas/{saga}/resume"), Some("mended"), 404),
        row("order", &format!("DELETE /api/admin/dlq/{saga}"), Some("mended"), 404),
    ];
    let found = recorded(&suite).await?;
    ensure!(found == expected, "{found:#?}");
    suite.audit().await
}

#[suite_tests::test]
async fn a_reason_may_be_in_a_header_and_texts_are_kept_as_sent() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let client = &participants.order.client;
    let request = client.request(Method::POST, "/api/admin/relay/resume").header("x-reason", "später");
    client.send(request).await?.expect(200)?;
    let request = client.request(Method::POST, "/api/admin/outbox/requeue");
    client.send(request.json(&json!({"filter": {}, "reason": "it's \"mended\" 😀"}))).await?.expect(200)?;
    let reasons: Vec<_> = recorded(&suite).await?.into_iter().map(|(_, actor, _, reason, _)| (actor, reason)).collect();
    let admin = |reason: &str| ("admin".to_owned(), Some(reason.to_owned()));
    ensure!(reasons == [admin("später"), admin("it's \"mended\" 😀")], "{reasons:?}");
    let sent = sqlx::query_scalar::<_, Option<String>>("select request from saga.operator_action order by action_id");
    let sent = sent.fetch_all(&suite.pool).await?;
    ensure!(sent[0].is_none() && sent[1].as_ref().is_some_and(|body| body.contains("\"filter\"")), "{sent:?}");
    suite.audit().await
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn what_cannot_be_recorded_is_not_done_except_in_memory() -> Test {
    let (suite, participants) = TestSuite::faulty(Tuning::default(), 100, 10).await?;
    let order = &participants.order;
    suite.execute("revoke insert on saga.operator_action from order_service").await?;
    let paused = async || {
        let relay = order.client.get("/api/admin/relay").await?.expect(200)?;
        anyhow::Ok(relay["paused"] == true)
    };
    let refused = act(order, Method::POST, "/api/admin/relay/pause", &json!({})).await?;
    ensure!(refused == 503 && !paused().await?, "{refused}");
    let fault = json!({"point": "in_step", "kind": "error"});
    ensure!(act(order, Method::POST, "/api/admin/faults", &fault).await? == 201);
    ensure!(act(order, Method::DELETE, "/api/admin/faults", &json!({})).await? == 200);
    ensure!(recorded(&suite).await?.is_empty());
    suite.execute("grant insert on saga.operator_action to order_service").await?;
    ensure!(act(order, Method::POST, "/api/admin/relay/pause", &json!({})).await? == 200 && paused().await?);
    ensure!(recorded(&suite).await?.len() == 1);
    Ok(())
}

/// Goes through the documents of all services, so a route that is added later is recorded too.
#[suite_tests::test(unaudited = "no order is placed")]
async fn every_documented_action_of_every_service_is_recorded_once() -> Test {
    let (suite, participants) = TestSuite::faulty(Tuning::default(), 100, 10).await?;
    let mut expected = Vec::new();
    for replica in participants.all() {
        let document = replica.client.get("/openapi.json").await?.expect(200)?;
        let paths = document["paths"].as_object().context("no paths")?;
        for (path, operations) in paths.iter().filter(|(path, _)| path.starts_with("/api/admin/")) {
            for method in operations.as_object().context("no operations")?.keys().filter(|method| *method != "get") {
                let method = method.to_uppercase();
                // Whatever the key is: an action that is refused is recorded too.
                let path = path.split('/').map(|part| if part.starts_with('{') { "nothing" } else { part });
                let path = path.collect::<Vec<_>>().join("/");
                act(replica, method.parse()?, &path, &json!({})).await?;
                expected.push((replica.service.to_string(), format!("{method} {path}")));
            }
        }
    }
    ensure!(expected.len() > 30, "{expected:#?}");
    let found = recorded(&suite).await?;
    let unanswered: Vec<_> = found.iter().filter(|(.., status)| status.is_none()).collect();
    ensure!(unanswered.is_empty(), "{unanswered:#?}");
    let found: Vec<_> = found.into_iter().map(|(service, _, action, ..)| (service, action)).collect();
    ensure!(found == expected, "{found:#?} instead of {expected:#?}");
    Ok(())
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn a_long_reason_is_refused() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let reason = "x".repeat(501);
    let pause = json!({ "reason": reason });
    ensure!(act(&participants.payment, Method::POST, "/api/admin/relay/pause", &pause).await? == 422);
    ensure!(recorded(&suite).await?.is_empty());
    Ok(())
}

#[suite_tests::test]
async fn what_an_operator_orders_is_recorded_without_the_cards_token() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = json!({"customer_id": "ann", "lines": [{"sku": "A", "quantity": 1}], "payment_method": "tok_visa"});
    let client = &participants.order.client;
    let by = |name: &str| client.request(Method::POST, "/api/orders").header("idempotency-key", name).json(&order);
    let customers = client.send(by("customer").bearer_auth("no-token")).await?.expect(201)?;
    let operators = by("operator").bearer_auth("dev-admin-token").header("x-reason", "by phone");
    let operators = client.send(operators).await?.expect(201)?;
    let found = recorded(&suite).await?;
    ensure!(found.len() == 1 && found[0].2 == "POST /api/orders", "{found:#?}");
    ensure!(found[0].3.as_deref() == Some("by phone") && found[0].4 == Some(201), "{found:#?}");
    let sent = sqlx::query_scalar::<_, Option<String>>("select request from saga.operator_action");
    ensure!(sent.fetch_one(&suite.pool).await?.is_none(), "it holds a card's token");
    participants.sagas_become(&[customers, operators], "COMPLETED").await?;
    suite.audit().await
}
