//! Bad input gets a problem document with the right status and a helpful sentence, and writes nothing.

use crate::prelude::*;

#[suite_tests::test(unaudited = "nothing is written")]
async fn every_bad_order_is_refused_and_nothing_is_written() -> Test {
    let (suite, participants) = TestSuite::selling(9_000_000_000_000_000, 1000).await?;
    let line = |sku: &str, quantity: Value| json!({"customer_id": "a", "payment_method": "t", "lines": [{"sku": sku, "quantity": quantity}]});
    let many: Vec<_> = (0..101).map(|_| ("A", 1)).collect();
    let mut unknown_field = order_of(&[("A", 1)], "tok_visa");
    unknown_field["price"] = json!(1);
    let cases: Vec<(&str, String, u16)> = vec![
        ("not JSON", "{".to_owned(), 400),
        ("no object", "[]".to_owned(), 422),
        ("no lines", order_of(&[], "t").to_string(), 422),
        ("too many lines", order_of(&many, "t").to_string(), 422),
        ("unknown SKU", line("NOPE", json!(1)).to_string(), 422),
        ("no SKU", line("", json!(1)).to_string(), 422),
        ("quantity 0", line("A", json!(0)).to_string(), 422),
        ("negative", line("A", json!(-1)).to_string(), 422),
        ("too many units", line("A", json!(1_000_001)).to_string(), 422),
        ("absurd", line("A", json!(1e300)).to_string(), 422),
        ("a fraction", line("A", json!(1.5)).to_string(), 422),
        ("a text", line("A", json!("1")).to_string(), 422),
        ("overflow", line("A", json!(1_000_000)).to_string(), 422),
        ("unknown field", unknown_field.to_string(), 422),
        ("NUL", order_of(&[("A", 1)], "tok\u{0}").to_string(), 422),
        ("huge", format!("{{\"customer_id\":\"{}\"}}", "x".repeat(70_000)), 413),
    ];
    let client = &participants.order.client;
    let send = async |kind: &str, body: String| {
        client.send(client.request(Method::POST, "/api/orders").header("content-type", kind).body(body)).await
    };
    for (name, body, status) in cases {
        let answer = send("application/json", body).await?;
        ensure!(answer.status == status, "{name}: {} instead of {status}: {}", answer.status, answer.body);
        ensure!(answer.header("content-type") == Some("application/problem+json"), "{name}");
        ensure!(answer.body["detail"].as_str().is_some_and(|d| d.len() > 10), "{name}: {}", answer.body);
        ensure!(answer.body["status"] == status && answer.body["instance"] == "/api/orders", "{name}: {}", answer.body);
        ensure!(answer.body["title"].is_string(), "{name}: {}", answer.body);
    }
    ensure!(send("text/plain", "{}".to_owned()).await?.status == 415);
    ensure!(client.send(client.request(Method::PUT, "/api/orders")).await?.status == 405);
    ensure!(client.get("/api/orders/not-an-id").await?.status == 422);
    ensure!(client.get("/nowhere").await?.status == 404);
    let exact = json!({"amount": 1, "currency": "USD", "exponent": 2});
    let product = json!({"sku": "B", "name": "b", "initial_quantity": 1, "price": exact});
    let status = participants.inventory.client.post("/api/products", &product).await?.status;
    ensure!(status == 422, "a price with another member");
    let written = "select (select count(*) from orders.customer_order) + (select count(*) from saga.saga_instance)
        + (select count(*) from orders.outbox) + (select count(*) from orders.idempotency_key)";
    ensure!(suite.number(written).await? == 0, "something was written");
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is written")]
async fn values_that_cannot_be_stored_unchanged_are_refused() -> Test {
    let (_suite, participants) = TestSuite::selling(100, 1000).await?;
    let placed = async |address: &str, wait: &str| {
        let body = format!(
            r#"{{"customer_id": "a", "payment_method": "tok_visa", "lines": [{{"sku": "A", "quantity": 1}}],
            "shipping_address": {address}}}"#
        );
        let request = participants.order.client.request(Method::POST, "/api/orders").header("prefer", wait).body(body);
        participants.order.client.send(request.header("content-type", "application/json")).await
    };
    for large in ["18446744073709551616", "-9223372036854775809", "12345678901234567890123", "1e300"] {
        let refused = placed(&format!(r#"{{"door": [{{"code": {large}}}]}}"#), "wait=0").await?.expect(422)?;
        ensure!(refused["errors"][0]["pointer"] == "/shipping_address", "{large}: {refused:#}");
    }
    let exact = r#"{"code":18446744073709551615,"height":0.5,"lower":-9223372036854775808}"#;
    let answer = placed(exact, "Wait = \"20\"; urgent").await?;
    ensure!(answer.header("preference-applied") == Some("wait=20"), "{answer:?}");
    let order = answer.expect(201)?;
    let kept = order["shipping_address"].to_string();
    ensure!(order["status"] == "CONFIRMED" && kept == exact, "{order:#}");

    for (currency, status) in [("AAA", 422), ("XTS", 422), ("usd", 422), ("CHF", 201)] {
        let product = json!({
            "sku": currency, "name": "b", "initial_quantity": 1, "price": {"amount": 1, "currency": currency}
        });
        participants.inventory.client.post("/api/products", &product).await?.expect(status)?;
        let price = json!({"price": {"amount": 1, "currency": currency}});
        let changed = participants.inventory.client.patch("/api/products/A", &price).await?;
        changed.expect(if status == 201 { 200 } else { 422 })?;
    }
    Ok(())
}
