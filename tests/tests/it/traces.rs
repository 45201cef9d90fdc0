//! One order is one trace, through three services, the broker and the card processor, to an OTLP collector.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use suite_tests::{CollectedSpan, Collector};

use crate::prelude::*;

/// The three programs, with all their spans sent to a collector, and one product on sale.
async fn traced(suite: &TestSuite, extra: &[(&str, &str)]) -> anyhow::Result<(Collector, [Running; 3])> {
    let collector = Collector::start().await?;
    let mut settings = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("TRACE_SAMPLE_RATIO", "1.0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ];
    settings.extend(extra);
    let participants = Running::participants(suite, &settings).await?;
    Ok((collector, participants))
}

async fn ended(order: &Running, token: &str, status: &str) -> anyhow::Result<Value> {
    let placed = order.client.order(&[("A", 1)], token).await?;
    let path = format!("/api/sagas/{}", placed["saga_id"].as_str().context("no saga")?);
    order.client.until(&path, |saga| saga["status"] == status).await
}

/// The spans of the saga's own trace, once each of these steps has its span and the trace is complete: several processes export
/// their spans as they end.
async fn tree_of(collector: &Collector, saga: &Value, steps: &[&str]) -> anyhow::Result<Vec<CollectedSpan>> {
    eventually(async || {
        let spans: Vec<_> = collector.spans().into_iter().filter(|s| saga["trace_id"] == s.trace_id.as_str()).collect();
        let has =
            |step: &&str| spans.iter().any(|s| s.attributes.get("messaging.operation.name").is_some_and(|n| n == step));
        ensure!(steps.iter().all(has), "not all of {steps:?} in {spans:#?}");
        is_one_connected_tree(&spans)?;
        anyhow::Ok(Some(spans))
    })
    .await
}

fn is_one_connected_tree(spans: &[CollectedSpan]) -> Test {
    let ids: BTreeSet<&str> = spans.iter().map(|s| s.span_id.as_str()).collect();
    ensure!(ids.len() == spans.len(), "a span was exported twice");
    let roots: Vec<_> = spans.iter().filter(|s| s.parent_id.is_empty()).collect();
    ensure!(roots.len() == 1 && roots[0].kind == SpanKind::Server, "the roots are {roots:#?}");
    for span in spans.iter().filter(|s| !s.parent_id.is_empty()) {
        ensure!(ids.contains(span.parent_id.as_str()), "the parent of {span:#?} is missing");
    }
    for consumer in spans.iter().filter(|s| s.kind == SpanKind::Consumer) {
        let parent = spans.iter().find(|s| s.span_id == consumer.parent_id).context("no parent")?;
        ensure!(parent.kind == SpanKind::Producer, "{} is below {}", consumer.name, parent.name);
        ensure!(parent.attributes["messaging.message.id"] == consumer.attributes["messaging.message.id"]);
        ensure!(consumer.attributes["messaging.system"] == "nats" && consumer.attributes.contains_key("saga.id"));
    }
    for producer in spans.iter().filter(|s| s.kind == SpanKind::Producer) {
        let parent = spans.iter().find(|s| s.span_id == producer.parent_id).context("no parent")?;
        ensure!(parent.attributes.get("db.system.name").is_some_and(|n| n == "postgresql"), "{producer:#?}");
    }
    let services: BTreeSet<&str> = spans.iter().map(|s| s.service.as_str()).collect();
    ensure!(contracts::SERVICES.iter().all(|s| services.contains(&s.0)), "only {services:?}");
    Ok(())
}

#[suite_tests::test]
async fn every_order_is_one_connected_trace() -> Test {
    let suite = TestSuite::new().await?;
    let (collector, [order, _inventory, _payment]) = traced(&suite, &[]).await?;
    let completed = ended(&order, "tok_visa", "COMPLETED").await?;
    let spans = tree_of(&collector, &completed, &["reserve_stock", "process_payment", "confirm_order"]).await?;
    let call = spans.iter().find(|s| s.attributes.get("url.full").is_some_and(|url| url.ends_with("/v1/charges")));
    let call = call.context("the call of the card processor has no span")?;
    ensure!(call.kind == SpanKind::Client && call.attributes["http.response.status_code"].contains("201"), "{call:#?}");

    let compensated = ended(&order, "tok_declined", "COMPENSATED").await?;
    let steps = ["reserve_stock", "process_payment", "cancel_unpaid_order", "release_stock", "refund_payment"];
    tree_of(&collector, &compensated, &steps).await?;
    ensure!(completed["trace_id"] != compensated["trace_id"], "two orders share a trace");
    suite.audit().await
}

#[suite_tests::test]
async fn a_timeout_belongs_to_the_orders_trace() -> Test {
    let suite = TestSuite::new().await?;
    let extra = [("SAGA_DEADLINE", "1s"), ("TIMEOUT_CHECK_EVERY", "100ms")];
    let (collector, [order, _inventory, mut payment]) = traced(&suite, &extra).await?;
    payment.process.kill();
    let saga = ended(&order, "tok_visa", "COMPENSATING").await?;
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let _payment = Running::start(&suite, PAYMENT, &settings).await?;
    tree_of(&collector, &saga, &["cancel_timed_out_order", "release_stock", "refund_payment"]).await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_redelivery_has_its_own_trace_with_a_link() -> Test {
    let suite = TestSuite::new().await?;
    let (collector, [order, inventory, _payment]) = traced(&suite, &[("FAULTS_ENABLED", "true")]).await?;
    let fault = json!({"point": "in_step", "kind": "error", "first": 1, "scope": {"step": "reserve_stock"}});
    inventory.client.post("/api/admin/faults", &fault).await?.expect(201)?;
    let saga = ended(&order, "tok_visa", "COMPLETED").await?;
    let spans = tree_of(&collector, &saga, &["reserve_stock", "process_payment", "confirm_order"]).await?;
    let first =
        spans.iter().find(|s| s.attributes.get("messaging.operation.name").is_some_and(|n| n == "reserve_stock"));
    let first = first.context("the first delivery has no span")?;
    eventually(async || {
        let again = |s: &&CollectedSpan| s.name == first.name && s.trace_id != first.trace_id;
        let spans = collector.spans();
        let again = spans.iter().find(again).context("the second delivery has no span")?;
        ensure!(again.links == [first.parent_id.clone()] && again.parent_id.is_empty(), "{again:#?}");
        anyhow::Ok(())
    })
    .await?;
    suite.audit().await
}
