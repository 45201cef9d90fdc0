//! The envelope of an event: CloudEvents 1.0 in binary mode. The attributes are NATS headers, the body is JSON.

use std::{str::FromStr, sync::Arc};

use async_nats::HeaderMap;
use saga::{EventType, Service, Step};
use serde::Serialize;
use uuid::Uuid;

use crate::trace_context::TraceContext;

pub(crate) const CE_ID: &str = "ce-id";
pub(crate) const CE_TYPE: &str = "ce-type";
pub(crate) const CE_SUBJECT: &str = "ce-subject";
pub(crate) const CE_TIME: &str = "ce-time";
pub(crate) const CE_SPECVERSION: &str = "ce-specversion";
pub(crate) const CE_SAGAID: &str = "ce-sagaid";
pub(crate) const CE_SEQUENCE: &str = "ce-sequence";
pub(crate) const CE_PARTITIONKEY: &str = "ce-partitionkey";
pub(crate) const BAGGAGE: &str = "baggage";
pub(crate) const TRACEPARENT: &str = "traceparent";

/// The saga, correlation, cause and trace of an action.
#[derive(Debug, Clone)]
pub struct Context {
    pub saga: Option<SagaRef>,
    pub correlation_id: String,
    /// The event that caused this one; `None` for a client's request.
    pub causation_id: Option<Uuid>,
    pub trace: TraceContext,
    /// W3C baggage, forwarded unchanged. Faults can be limited to its entries.
    pub baggage: Option<Arc<str>>,
}

/// The saga that an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SagaRef {
    pub saga_id: Uuid,
    pub saga_type: String,
}

impl Context {
    /// A context outside any saga, in a new trace.
    pub fn background(correlation_id: impl Into<String>) -> Self {
        Self::in_trace(correlation_id, TraceContext::root())
    }

    /// The context of a client's request; a `traceparent` that cannot be read starts a new trace.
    pub fn of_request(correlation_id: impl Into<String>, traceparent: &str) -> Self {
        let trace = traceparent.parse().unwrap_or_else(|_| TraceContext::root());
        Self::in_trace(correlation_id, trace)
    }

    fn in_trace(correlation_id: impl Into<String>, trace: TraceContext) -> Self {
        Context { saga: None, correlation_id: correlation_id.into(), causation_id: None, trace, baggage: None }
    }

    pub fn in_saga(mut self, saga_id: Uuid, saga_type: &str) -> Self {
        self.saga = Some(SagaRef { saga_id, saga_type: saga_type.to_owned() });
        self
    }

    pub fn with_baggage(mut self, baggage: Option<Arc<str>>) -> Self {
        self.baggage = baggage;
        self
    }

    /// The `baggage` header of a call to another system; `None` without baggage.
    pub fn baggage_header(&self) -> Option<String> {
        let baggage = self.baggage.as_deref()?;
        Some(self.saga_id().map_or_else(|| baggage.to_owned(), |id| format!("{baggage},saga={id}")))
    }

    pub fn saga_id(&self) -> Option<Uuid> {
        self.saga.as_ref().map(|s| s.saga_id)
    }
}

/// The metadata of a delivered event.
#[derive(Debug, Clone)]
pub struct Metadata {
    pub event_id: Uuid,
    /// The event's number among the events of its aggregate.
    pub sequence: i64,
    /// The context in which the event was published.
    pub published_in: Context,
}

impl Metadata {
    /// The context of the actions that this event causes.
    pub fn context(&self) -> Context {
        let parent = self.published_in.trace;
        // A sampled trace continues from the span that processes this event; an unsampled one has ids without spans.
        let trace = if parent.is_sampled() { parent } else { parent.child() };
        Context { causation_id: Some(self.event_id), trace, ..self.published_in.clone() }
    }

    pub fn saga_id(&self) -> Option<Uuid> {
        self.published_in.saga_id()
    }
}

/// Why a message cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvelopeError {
    #[error("header {0} is missing")]
    Missing(&'static str),
    #[error("header {name} is not valid: {value:?}")]
    Invalid { name: &'static str, value: String },
    /// A newer or an older build may know it.
    #[error("the message is a {found}, but this build of the step reads {expected}")]
    UnknownVersion { expected: String, found: String },
    #[error("the body cannot be decoded")]
    Body(#[source] serde_json::Error),
}

impl EnvelopeError {
    pub(crate) fn unknown(expected: EventType, found: &str) -> Self {
        EnvelopeError::UnknownVersion { expected: expected.wire_name(), found: found.to_owned() }
    }
}

/// The headers of an event that have no column in its outbox row.
#[derive(Debug, Serialize)]
pub(crate) struct StoredHeaders {
    #[serde(rename = "ce-source")]
    source: String,
    #[serde(rename = "ce-sagatype", skip_serializing_if = "Option::is_none")]
    saga_type: Option<String>,
    #[serde(rename = "ce-stepnumber")]
    step_number: String,
    #[serde(rename = "ce-compensating")]
    compensating: String,
    #[serde(rename = "ce-correlationid")]
    correlation_id: String,
    #[serde(rename = "ce-causationid", skip_serializing_if = "Option::is_none")]
    causation_id: Option<Uuid>,
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    baggage: Option<Arc<str>>,
}

impl StoredHeaders {
    pub(crate) fn new(publisher: Service, step: &Step, context: &Context, trace: TraceContext) -> Self {
        StoredHeaders {
            source: format!("/services/{publisher}"),
            saga_type: context.saga.as_ref().map(|s| s.saga_type.clone()),
            step_number: step.number.to_string(),
            compensating: step.is_compensating().to_string(),
            correlation_id: context.correlation_id.clone(),
            causation_id: context.causation_id,
            traceparent: trace.to_string(),
            baggage: context.baggage.clone(),
        }
    }
}

/// Reads the envelope of a delivered message, checks that its type is `expected` in some version, and returns the version.
pub(crate) fn read(headers: &HeaderMap, expected: EventType) -> Result<(Metadata, u16), EnvelopeError> {
    let found = header(headers, CE_TYPE).ok_or(EnvelopeError::Missing(CE_TYPE))?;
    let (name, version) =
        parse_type(found).ok_or_else(|| EnvelopeError::Invalid { name: CE_TYPE, value: found.to_owned() })?;
    if name != expected.name {
        return Err(EnvelopeError::unknown(expected, found));
    }
    let event_id: Uuid = parsed(headers, CE_ID)?.ok_or(EnvelopeError::Missing(CE_ID))?;
    let saga = match (parsed::<Uuid>(headers, CE_SAGAID)?, header(headers, "ce-sagatype")) {
        (Some(saga_id), Some(saga_type)) => Some(SagaRef { saga_id, saga_type: saga_type.to_owned() }),
        _ => None,
    };
    let trace = header(headers, "traceparent").and_then(|t| t.parse().ok()).unwrap_or_else(TraceContext::root);
    let published_in = Context {
        saga,
        correlation_id: header(headers, "ce-correlationid").unwrap_or_default().to_owned(),
        causation_id: parsed(headers, "ce-causationid")?,
        trace,
        baggage: header(headers, BAGGAGE).map(Arc::from),
    };
    let sequence = parsed(headers, CE_SEQUENCE)?.unwrap_or_default();
    Ok((Metadata { event_id, sequence, published_in }, version))
}

/// Splits `OrderCreated.v1`; `None` when no build can have written it.
fn parse_type(text: &str) -> Option<(&str, u16)> {
    let (name, version) = text.rsplit_once(".v")?;
    let number: u16 = version.parse().ok()?;
    let sound = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric()) && number.to_string() == version;
    sound.then_some((name, number))
}

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).map(async_nats::HeaderValue::as_str)
}

fn parsed<T: FromStr>(headers: &HeaderMap, name: &'static str) -> Result<Option<T>, EnvelopeError> {
    let invalid = |value: &str| EnvelopeError::Invalid { name, value: value.to_owned() };
    header(headers, name).map(|value| value.parse().map_err(|_| invalid(value))).transpose()
}
