//! OpenTelemetry spans of an event: the transaction that writes it, its publication, and each step that it triggers. Only sampled
//! traces have spans. Attribute names follow the semantic conventions.

use std::time::{Duration, SystemTime};

use opentelemetry::{
    Context as OtelContext, KeyValue, global,
    global::BoxedSpan,
    trace::{Link, Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};

use crate::TraceContext;

/// A span that ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    inner: BoxedSpan,
}

impl Span {
    /// A child span of `parent`; `None` when the trace is not sampled.
    pub fn start(
        kind: SpanKind,
        name: impl Into<String>,
        parent: TraceContext,
        attributes: Vec<KeyValue>,
    ) -> Option<Self> {
        Self::started_before(Duration::ZERO, kind, name, parent, attributes)
    }

    /// The same for an operation that began earlier.
    pub(crate) fn started_before(
        ago: Duration,
        kind: SpanKind,
        name: impl Into<String>,
        parent: TraceContext,
        attributes: Vec<KeyValue>,
    ) -> Option<Self> {
        if !parent.is_sampled() {
            return None;
        }
        let tracer = global::tracer("messaging");
        #[expect(clippy::disallowed_methods, reason = "spans have wall-clock times")]
        let began = SystemTime::now() - ago;
        let builder =
            tracer.span_builder(name.into()).with_kind(kind).with_attributes(attributes).with_start_time(began);
        let parent = OtelContext::new().with_remote_span_context(parent.into());
        Self::valid(builder.start_with_context(&tracer, &parent))
    }

    /// A span in a new trace with a link to `cause`: for repeated or much later operations.
    pub(crate) fn start_linked(
        kind: SpanKind,
        name: impl Into<String>,
        cause: TraceContext,
        attributes: Vec<KeyValue>,
    ) -> Option<Self> {
        if !cause.is_sampled() {
            return None;
        }
        let tracer = global::tracer("messaging");
        let link = Link::with_context(cause.into());
        let builder =
            tracer.span_builder(name.into()).with_kind(kind).with_attributes(attributes).with_links(vec![link]);
        Self::valid(builder.start_with_context(&tracer, &OtelContext::new()))
    }

    /// Without a tracer provider there are no spans.
    fn valid(inner: BoxedSpan) -> Option<Self> {
        inner.span_context().is_valid().then_some(Span { inner })
    }

    /// The context of child spans.
    pub fn context(&self) -> TraceContext {
        self.inner.span_context().clone().into()
    }

    pub fn set(&mut self, key: &'static str, value: impl Into<opentelemetry::Value>) {
        self.inner.set_attribute(KeyValue::new(key, value));
    }

    pub fn fail(&mut self, error: impl Into<String>) {
        self.inner.set_status(Status::error(error.into()));
    }
}
