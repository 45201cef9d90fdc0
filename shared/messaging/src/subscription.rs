//! Binds a step to its handler. The event type is the step's: a handler for another event does not compile.

use std::{fmt, sync::Arc};

use async_nats::HeaderMap;
use bytes::Bytes;
use faults::Subject;
use futures_util::future::BoxFuture;
use opentelemetry::{KeyValue, trace::SpanKind};
use saga::{Event, EventType, Step, StepOn};

use crate::{
    Batch, Committed, Delivery, FaultPoint, Faults, Span, StepError, TraceContext,
    consumer::Intake,
    dry_run::Trial,
    envelope::{self, BAGGAGE, CE_ID, CE_SAGAID, EnvelopeError},
    response_timeout::watch_responses,
};

/// A message as the broker delivered it, or as a dead letter stores it.
#[derive(Debug, Clone)]
pub(crate) struct RawEvent {
    pub(crate) subject: String,
    pub(crate) headers: Arc<HeaderMap>,
    pub(crate) payload: Bytes,
    /// Whether the event was delivered to the step before.
    pub(crate) again: bool,
    /// The span of its processing; `None` when its trace is not sampled, or the span is in another trace.
    pub(crate) span: Option<TraceContext>,
}

impl RawEvent {
    pub(crate) fn new(subject: String, headers: impl Into<Arc<HeaderMap>>, payload: Bytes, again: bool) -> Self {
        RawEvent { subject, headers: headers.into(), payload, again, span: None }
    }

    /// Opens the span of the step that processes this event. A redelivery gets a span in a new trace, linked to the publication;
    /// the events that the step publishes still belong to the original trace.
    fn open_span(&mut self, step: &'static Step) -> Option<Span> {
        let header = |name| envelope::header(&self.headers, name);
        let published: TraceContext = header("traceparent")?.parse().ok()?;
        if !published.is_sampled() {
            return None;
        }
        let text = |name| header(name).unwrap_or_default().to_owned();
        let attributes = vec![
            KeyValue::new("messaging.system", "nats"),
            KeyValue::new("messaging.operation.type", "process"),
            KeyValue::new("messaging.operation.name", step.name),
            KeyValue::new("messaging.destination.name", self.subject.clone()),
            KeyValue::new("messaging.consumer.group.name", step.consumer()),
            KeyValue::new("messaging.message.id", text(CE_ID)),
            KeyValue::new("messaging.message.conversation_id", text("ce-correlationid")),
            KeyValue::new("saga.id", text(CE_SAGAID)),
        ];
        let name = format!("{} {}", step.name, self.subject);
        if self.again {
            return Span::start_linked(SpanKind::Consumer, name, published, attributes);
        }
        let span = Span::start(SpanKind::Consumer, name, published, attributes)?;
        self.span = Some(span.context());
        Some(span)
    }

    /// The scope of faults that may hit the message, as far as its headers name it.
    pub(crate) fn subject(&self, step: &'static Step) -> Subject {
        let saga_id = envelope::header(&self.headers, CE_SAGAID).and_then(|id| id.parse().ok());
        let baggage = envelope::header(&self.headers, BAGGAGE).unwrap_or_default();
        Subject::from_baggage(saga_id, baggage).step(step.name)
    }
}

/// The outcome of a handler's run. Messages are identified by their index in the batch.
pub(crate) struct Ran {
    pub(crate) unreadable: Vec<(usize, EnvelopeError)>,
    /// For each readable message its index and its event's id.
    pub(crate) read: Vec<(usize, uuid::Uuid)>,
    pub(crate) result: Result<Committed, StepError>,
}

impl Ran {
    /// The run failed before anything was read.
    pub(crate) fn failed(error: StepError) -> Self {
        Ran { unreadable: Vec::new(), read: Vec::new(), result: Err(error) }
    }
}

type Handler = dyn Fn(Vec<RawEvent>, Option<Arc<Trial>>) -> BoxFuture<'static, Ran> + Send + Sync;

/// A step and its handler, ready to be consumed.
#[derive(Clone)]
pub struct Subscription {
    pub step: &'static Step,
    pub event: EventType,
    /// How many batches of this step may be processed concurrently.
    pub lanes: usize,
    /// The intake of this process.
    pub intake: Intake,
    handler: Arc<Handler>,
}

/// Subscribes `handler` to the events that trigger `step`.
pub fn subscribe<A, E, F, Fut>(app: &A, step: &'static StepOn<E>, handler: F) -> Subscription
where
    A: Clone + Send + Sync + 'static,
    E: Event,
    F: Fn(A, Batch<E>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Committed, StepError>> + Send + 'static,
{
    let app = app.clone();
    let run = move |raw: Vec<RawEvent>, trial: Option<Arc<Trial>>| -> BoxFuture<'static, Ran> {
        let (app, handler) = (app.clone(), handler.clone());
        Box::pin(async move {
            let mut ran = Ran { unreadable: Vec::new(), read: Vec::new(), result: Ok(Committed::nothing()) };
            let mut deliveries = Vec::with_capacity(raw.len());
            for (place, message) in raw.iter().enumerate() {
                match decode::<E>(message) {
                    Ok(delivery) => {
                        ran.read.push((place, delivery.meta.event_id));
                        deliveries.push(delivery);
                    }
                    Err(error) => ran.unreadable.push((place, error)),
                }
            }
            if !deliveries.is_empty() {
                ran.result = handler(app, Batch { step: &step.step, deliveries, trial }).await;
            }
            ran
        })
    };
    Subscription { step: &step.step, event: E::TYPE, lanes: 1, intake: Intake::default(), handler: Arc::new(run) }
}

impl Subscription {
    /// Processes several batches of this step concurrently: for steps that wait for other systems.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes.max(1);
        self
    }

    pub(crate) fn run(&self, faults: &Faults, mut messages: Vec<RawEvent>) -> BoxFuture<'static, Ran> {
        let (handler, faults, step) = (Arc::clone(&self.handler), faults.clone(), self.step);
        Box::pin(async move {
            let mut spans: Vec<Span> = messages.iter_mut().filter_map(|message| message.open_span(step)).collect();
            let subject = || messages.first().map(|m| m.subject(step)).unwrap_or_default();
            if let Err(injected) = faults.at(FaultPoint::InStep, subject).await {
                return Ran::failed(StepError::failed(injected));
            }
            let ran = watch_responses(handler(messages, None), |error| Ran::failed(error.into())).await;
            if let Err(error) = &ran.result {
                spans.iter_mut().for_each(|span| span.fail(error.to_string()));
            }
            ran
        })
    }

    /// Runs the handler as a dry run, which passes no fault points, so that it does not use up a fault.
    pub(crate) fn try_out(&self, messages: Vec<RawEvent>, trial: Arc<Trial>) -> BoxFuture<'static, Ran> {
        (self.handler)(messages, Some(trial))
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("step", &self.step.name).finish_non_exhaustive()
    }
}

fn decode<E: Event>(message: &RawEvent) -> Result<Delivery<E>, EnvelopeError> {
    let (mut meta, version) = envelope::read(&message.headers, E::TYPE)?;
    if let Some(span) = message.span {
        meta.published_in.trace = span;
    }
    let unknown = || EnvelopeError::unknown(E::TYPE, &EventType { version, ..E::TYPE }.wire_name());
    let event = E::read(version, &message.payload).ok_or_else(unknown)?.map_err(EnvelopeError::Body)?;
    Ok(Delivery { event, meta })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
