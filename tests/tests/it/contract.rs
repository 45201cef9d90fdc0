//! The contracts: golden events, OpenAPI against the served routes.

use std::fs;

use contracts::{
    Currency, Money, OrderId, PaymentId, Sku,
    catalogue::{Product, ProductCreated, ProductDetailsChanged, ProductPriceChanged, ProductStatus, StockReplenished},
    order_fulfillment::{
        CancelReason, OrderCancelled, OrderConfirmed, OrderCreated, OrderLine, PaymentFailed, PaymentProcessed,
        PaymentRefunded, SagaTimedOut, Shortage, StockLine, StockReleased, StockReservationFailed, StockReserved,
    },
};
use saga::Event;
use time::macros::datetime;
use uuid::uuid;

use crate::prelude::*;

const ORDER_ID: OrderId = OrderId(uuid!("019af3a0-0000-7000-8000-000000000001"));
const PAYMENT_ID: PaymentId = PaymentId(uuid!("019af3a0-0000-7000-8000-000000000002"));
const TOTAL: Money = Money::new(259_800, Currency::USD);

/// Compares the event with its golden file: readers of another version would silently lose a renamed or changed field.
fn golden<E: Event + PartialEq + std::fmt::Debug>(event: &E) -> Test {
    let path = format!("{}/golden/{}.json", env!("CARGO_MANIFEST_DIR"), E::TYPE.wire_name());
    let written = serde_json::to_string_pretty(event)? + "\n";
    let golden = fs::read_to_string(&path).with_context(|| format!("{path} is missing; it should hold\n{written}"))?;
    ensure!(golden == written, "{} is not what {path} holds:\n{written}", E::TYPE.wire_name());
    ensure!(&serde_json::from_str::<E>(&golden)? == event);
    let mut newer: Value = serde_json::from_str(&golden)?;
    add_fields(&mut newer);
    ensure!(&serde_json::from_value::<E>(newer)? == event, "a field that was added later stops an older reader");
    Ok(())
}

/// Adds a member to the event and to every object within it.
fn add_fields(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(add_fields);
            members.insert("a_field_of_the_future".to_owned(), Value::from(1));
        }
        Value::Array(items) => items.iter_mut().for_each(add_fields),
        _ => {}
    }
}

/// A timeout as builds before its other fields wrote it.
fn timed_out() -> SagaTimedOut {
    SagaTimedOut {
        saga_id: uuid!("019af3a0-0000-7000-8000-000000000003"),
        saga_type: "OrderFulfillment".to_owned(),
        order_id: ORDER_ID,
        deadline: datetime!(2026-11-21 12:00:00.5 UTC),
        current_step: 1,
        step: None,
        last_event_type: None,
        started_at: None,
        elapsed_ms: None,
        detected_by: None,
    }
}

#[test]
fn a_timeout_of_an_earlier_build_is_read() -> Test {
    let body = r#"{"saga_id": "019af3a0-0000-7000-8000-000000000003", "saga_type": "OrderFulfillment",
        "order_id": "019af3a0-0000-7000-8000-000000000001", "deadline": "2026-11-21T12:00:00.5Z", "current_step": 1}"#;
    ensure!(serde_json::from_str::<SagaTimedOut>(body)? == timed_out());
    Ok(())
}

#[test]
fn every_event_matches_its_golden_file() -> Test {
    let sku = || Sku::try_from("LAPTOP-15".to_owned()).expect("a SKU");
    let line = || StockLine { sku: sku(), quantity: 2 };
    let product = || Product {
        sku: sku(),
        name: "Laptop 15\"".to_owned(),
        category: Some("computers".to_owned()),
        price: Money::new(129_900, Currency::USD),
        status: ProductStatus::Active,
        version: 3,
    };
    let (customer_id, payment_method) = ("alice".to_owned(), "tok_visa".to_owned());
    golden(&OrderCreated {
        order_id: ORDER_ID,
        customer_id: customer_id.clone(),
        lines: vec![OrderLine { sku: sku(), quantity: 2, unit_price: Money::new(129_900, Currency::USD) }],
        total: TOTAL,
        payment_method: payment_method.clone(),
    })?;
    golden(&StockReserved {
        order_id: ORDER_ID,
        customer_id: customer_id.clone(),
        total: TOTAL,
        payment_method: payment_method.clone(),
        lines: vec![line()],
    })?;
    golden(&StockReservationFailed {
        order_id: ORDER_ID,
        reason: "out of stock".to_owned(),
        shortages: vec![Shortage { sku: sku(), requested: 2, available: 1 }],
    })?;
    let gateway_reference = "ch_1".to_owned();
    golden(&PaymentProcessed { order_id: ORDER_ID, payment_id: PAYMENT_ID, amount: TOTAL, gateway_reference })?;
    let decline_code = "card_declined".to_owned();
    golden(&PaymentFailed { order_id: ORDER_ID, payment_id: PAYMENT_ID, amount: TOTAL, decline_code })?;
    golden(&OrderConfirmed { order_id: ORDER_ID, customer_id: customer_id.clone(), total: TOTAL })?;
    golden(&OrderCancelled {
        order_id: ORDER_ID,
        customer_id,
        reason: CancelReason::CustomerRequest,
        detail: "changed my mind".to_owned(),
        total: TOTAL,
        payment_method,
    })?;
    golden(&StockReleased { order_id: ORDER_ID, lines: vec![line()] })?;
    golden(&PaymentRefunded { order_id: ORDER_ID, payment_id: PAYMENT_ID, amount: TOTAL })?;
    golden(&SagaTimedOut {
        step: Some("reserve_stock".to_owned()),
        last_event_type: Some("StockReserved.v1".to_owned()),
        started_at: Some(datetime!(2026-11-21 11:59:00.5 UTC)),
        elapsed_ms: Some(60_250),
        detected_by: Some("inventory".to_owned()),
        ..timed_out()
    })?;
    golden(&ProductCreated { product: product() })?;
    golden(&ProductPriceChanged { product: product() })?;
    golden(&ProductDetailsChanged { product: product() })?;
    golden(&StockReplenished { sku: sku(), quantity: 1000, available: 1050, reason: "automatic".to_owned() })
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn every_documented_operation_is_served() -> Test {
    let suite = TestSuite::new().await?;
    for service in [ORDER, INVENTORY, PAYMENT] {
        let replica = suite.start(service).await?;
        let document = serde_json::to_value(&replica.openapi)?;
        let served = replica.client.get("/openapi.json").await?.expect(200)?;
        ensure!(served == document, "{service} serves another document");
        let reason = &document["components"]["schemas"]["OutboxAction"]["properties"]["reason"];
        ensure!(reason["pattern"] == r"^[^\u0000]*$", "{service} refuses NUL, and does not say so: {reason}");
        let operations = replica.operations()?;
        for operation in &operations {
            let (method, path) = (&operation.method, &operation.path);
            let request = replica.client.request(method.clone(), &operation.filled());
            let answer = replica.client.send(request).await?;
            let documented = operation.answers.contains(&answer.status.to_string()) && answer.status != 405;
            ensure!(documented, "the document of {service} lacks what {method} {path} answers: {answer:?}");
            if answer.status >= 400 {
                let kind = answer.header("content-type").unwrap_or_default();
                ensure!(kind == "application/problem+json", "{service} {method} {path}: {kind}");
            }
            ensure!(answer.header("x-correlation-id").is_some() && answer.header("traceparent").is_some());
        }
        for (method, path) in routes_of(service.0) {
            let has = operations.iter().any(|o| o.path == *path && o.method.as_str().eq_ignore_ascii_case(method));
            ensure!(has, "{service} lacks {method} {path}");
        }
    }
    Ok(())
}

const ADMINISTRATION: &[(&str, &str)] = &[
    ("get", "/health/live"),
    ("get", "/health/ready"),
    ("get", "/health/serving"),
    ("get", "/metrics"),
    ("get", "/api/admin/dlq"),
    ("get", "/api/admin/dlq/count"),
    ("get", "/api/admin/dlq/{id}"),
    ("post", "/api/admin/dlq/{id}/replay"),
    ("post", "/api/admin/dlq/replay"),
    ("get", "/api/admin/dlq/replays"),
    ("get", "/api/admin/dlq/replays/{id}"),
    ("delete", "/api/admin/dlq/{id}"),
    ("get", "/api/admin/outbox"),
    ("get", "/api/admin/outbox/{event_id}"),
    ("post", "/api/admin/outbox/{event_id}/requeue"),
    ("get", "/api/admin/relay"),
    ("post", "/api/admin/relay/pause"),
    ("post", "/api/admin/relay/resume"),
    ("get", "/api/admin/consumers"),
    ("post", "/api/admin/consumers/{step}/pause"),
    ("post", "/api/admin/consumers/{step}/resume"),
    ("post", "/api/admin/timeouts/check"),
    ("post", "/api/admin/housekeeping"),
];

fn routes_of(service: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let own: &[(&str, &str)] = match service {
        "order" => &[
            ("post", "/api/orders"),
            ("get", "/api/orders"),
            ("get", "/api/orders/{id}"),
            ("post", "/api/orders/{id}/cancel"),
            ("get", "/api/orders/{id}/explain"),
            ("post", "/api/admin/catalogue/rebuild"),
            ("post", "/api/customers"),
            ("get", "/api/customers"),
            ("get", "/api/customers/{id}"),
            ("patch", "/api/customers/{id}"),
            ("get", "/api/customers/{id}/summary"),
            ("get", "/api/products"),
            ("get", "/api/products/{sku}"),
            ("get", "/api/sagas"),
            ("get", "/api/sagas/summary"),
            ("get", "/api/sagas/{id}"),
            ("post", "/api/admin/sagas/{id}/resume"),
        ],
        "inventory" => &[
            ("post", "/api/products"),
            ("get", "/api/products"),
            ("get", "/api/products/{sku}"),
            ("patch", "/api/products/{sku}"),
            ("post", "/api/products/{sku}/replenish"),
            ("get", "/api/reservations/{order_id}"),
        ],
        _ => &[("get", "/api/payments"), ("get", "/api/payments/{id}"), ("post", "/api/admin/forgotten-charges")],
    };
    own.iter().chain(ADMINISTRATION)
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn every_event_that_undoes_an_order_is_documented() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = participants.place(&[("A", 1)], "tok_declined").await?;
    let saga = participants.saga_becomes(&order, "COMPENSATED").await?;
    let undoing = ["cancel_unpaid_order", "refund_payment", "release_stock"];
    for entry in saga["steps"].as_array().into_iter().flatten() {
        let undoes = entry["step"].as_str().is_some_and(|step| undoing.contains(&step));
        let direction = if undoes { "COMPENSATION" } else { "FORWARD" };
        ensure!(entry["direction"] == direction, "{entry:#}");
    }
    let jetstream = suite.jetstream().await?;
    let mut marked = Vec::new();
    for service in contracts::SERVICES {
        let stream = jetstream.get_stream(service.stream()).await?;
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let headers = stream.get_raw_message(sequence).await?.headers;
            let header = |name| headers.get(name).map(|value| value.as_str().to_owned()).unwrap_or_default();
            if header("ce-compensating") == "true" {
                marked.push(header("ce-type"));
            }
        }
    }
    ensure!(marked == ["OrderCancelled.v1", "StockReleased.v1", "PaymentRefunded.v1"], "{marked:?}");
    Ok(())
}
