//! OpenTelemetry spans of an event's way: the transaction that writes it, its publication, each step that it sets in
//! motion. Only sampled traces have spans. Attribute names are those of the semantic conventions.

use std::time::{Duration, SystemTime};

use opentelemetry::{
    Context as OtelContext, KeyValue, SpanId, TraceFlags, TraceId, global,
    global::BoxedSpan,
    trace::{Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, TraceState, Tracer as _},
};

use crate::TraceContext;

/// A span that ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    inner: BoxedSpan,
}

impl Span {
    /// A span below `parent`; none when its trace is not sampled.
    pub fn start(kind: SpanKind, name: impl Into<String>, parent: TraceContext, facts: Vec<KeyValue>) -> Option<Self> {
        Self::begin(kind, name.into(), parent, facts, Duration::ZERO)
    }

    /// The same for something that began a while ago.
    pub(crate) fn started_before(
        ago: Duration,
        kind: SpanKind,
        name: impl Into<String>,
        parent: TraceContext,
        facts: Vec<KeyValue>,
    ) -> Option<Self> {
        Self::begin(kind, name.into(), parent, facts, ago)
    }

    /// A span in a trace of its own, with a link to `cause`: for what happens again, or much later.
    pub(crate) fn start_linked(
        kind: SpanKind,
        name: impl Into<String>,
        cause: TraceContext,
        facts: Vec<KeyValue>,
    ) -> Option<Self> {
        if !cause.is_sampled() {
            return None;
        }
        let tracer = global::tracer("messaging");
        let link = Link::with_context(cause.into());
        let builder = tracer.span_builder(name.into()).with_kind(kind).with_attributes(facts).with_links(vec![link]);
        Self::valid(builder.start_with_context(&tracer, &OtelContext::new()))
    }

    fn begin(kind: SpanKind, name: String, parent: TraceContext, facts: Vec<KeyValue>, ago: Duration) -> Option<Self> {
        if !parent.is_sampled() {
            return None;
        }
        let tracer = global::tracer("messaging");
        #[expect(clippy::disallowed_methods, reason = "spans are told in wall-clock time")]
        let began = SystemTime::now() - ago;
        let builder = tracer.span_builder(name).with_kind(kind).with_attributes(facts).with_start_time(began);
        let parent = OtelContext::new().with_remote_span_context(parent.into());
        Self::valid(builder.start_with_context(&tracer, &parent))
    }

    /// Without a tracer provider there are no spans.
    fn valid(inner: BoxedSpan) -> Option<Self> {
        inner.span_context().is_valid().then_some(Span { inner })
    }

    /// What is told to whoever goes on from here.
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

impl From<TraceContext> for SpanContext {
    fn from(context: TraceContext) -> Self {
        let (trace_id, span_id) = context.ids();
        let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
        SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, true, TraceState::default())
    }
}

impl From<SpanContext> for TraceContext {
    fn from(context: SpanContext) -> Self {
        let trace_id = u128::from_be_bytes(context.trace_id().to_bytes());
        let span_id = u64::from_be_bytes(context.span_id().to_bytes());
        TraceContext::of(trace_id, span_id, context.is_sampled())
    }
}
