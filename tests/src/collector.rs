//! An OTLP collector that keeps all spans.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, any_value},
    trace::v1::span::SpanKind,
};
use prost::Message as _;
use tokio::net::TcpListener;

/// A span as a collector sees it. Ids are in hexadecimal; no parent is an empty id.
#[derive(Debug, Clone)]
pub struct CollectedSpan {
    pub service: String,
    pub name: String,
    pub kind: SpanKind,
    pub trace_id: String,
    pub span_id: String,
    pub parent_id: String,
    pub links: Vec<String>,
    pub attributes: HashMap<String, String>,
}

#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<CollectedSpan>>>);

pub struct Collector {
    pub url: String,
    spans: Spans,
}

impl Collector {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let spans = Spans::default();
        let router = Router::new().route("/v1/traces", post(collect)).with_state(spans.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Collector { url, spans })
    }

    /// All spans, so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.spans.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn collect(State(spans): State<Spans>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).expect("an OTLP request");
    let mut kept = spans.0.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in request.resource_spans {
        let attributes = resource.resource.map(|r| r.attributes).unwrap_or_default();
        let named = attributes.into_iter().find(|a| a.key == "service.name");
        let service = named.map(|a| text(a.value)).unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            kept.push(CollectedSpan {
                service: service.clone(),
                kind: span.kind(),
                trace_id: hex(&span.trace_id),
                span_id: hex(&span.span_id),
                parent_id: hex(&span.parent_span_id),
                links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
                attributes: span.attributes.into_iter().map(|a| (a.key, text(a.value))).collect(),
                name: span.name,
            });
        }
    }
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
