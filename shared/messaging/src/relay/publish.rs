//! Publishing one batch: pipelined, each message expecting the one before it to be the stream's last, so that nothing
//! overtakes and a stale relay is refused; or one by one, when some may be stored already.

use async_nats::{
    HeaderMap,
    jetstream::{
        self, ErrorCode,
        context::{PublishAckFuture, PublishErrorKind},
        message::PublishMessage,
        publish::PublishAck,
    },
};
use faults::{Pass, Subject};
use opentelemetry::{KeyValue, trace::SpanKind};
use serde_json::{Map, Value};
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::{
    Point, Span, TraceContext,
    bus::Bus,
    envelope::{
        self, BAGGAGE, CE_ID, CE_PARTITIONKEY, CE_SAGAID, CE_SEQUENCE, CE_SPECVERSION, CE_SUBJECT, CE_TIME, CE_TYPE,
        TRACEPARENT,
    },
    outbox::{PendingRow, Receipt},
};

/// Where the stream ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StreamPosition {
    /// The stream's time of creation in nanoseconds.
    pub(super) epoch: i64,
    pub(super) last_sequence: u64,
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) receipts: Vec<Receipt>,
    pub(super) last_sequence: u64,
    /// How many of the receipts were for what the stream had already.
    pub(super) duplicates: u64,
    /// Why the rest of the batch was not published.
    pub(super) stop: Option<Stop>,
}

#[derive(Debug)]
pub(super) enum Stop {
    /// The broker will not have this one message.
    Refused { event_id: Uuid, error: String },
    /// A fault on purpose holds up this one event.
    Held { event_id: Uuid },
    /// The stream's last sequence is another than expected.
    OutOfStep,
    /// The broker is away, or full.
    Away(String),
    /// The broker has not said what became of it.
    Silent(String),
}

pub(super) async fn publish(bus: &Bus, rows: &[PendingRow], position: StreamPosition, singly: bool) -> Published {
    let mut published = Published {
        receipts: Vec::with_capacity(rows.len()),
        last_sequence: position.last_sequence,
        duplicates: 0,
        stop: None,
    };
    if singly || rows.len() == 1 {
        for row in rows {
            if !published.one(bus, row).await {
                break;
            }
        }
        return published;
    }
    // Sending only queues; the receipts are awaited while later messages are on their way already.
    let mut sent = Vec::with_capacity(rows.len());
    for (expected_last, row) in (position.last_sequence..).zip(rows) {
        // The sequence alone would let this one in when the one before is refused for a message that somebody else has put
        // into the stream, at just this place.
        let before = sent.last().map(|(row, _): &(&PendingRow, _)| message_id(row));
        sent.push((row, send(bus, row, expected_last, before).await));
        if sent.last().is_some_and(|(_, outcome)| outcome.is_err()) {
            break;
        }
    }
    for (row, sent) in sent {
        if !published.note(row, receipt(row, sent).await) {
            break;
        }
    }
    published
}

impl Published {
    /// Publishes one row and awaits its receipt; false when the batch ends here.
    async fn one(&mut self, bus: &Bus, row: &PendingRow) -> bool {
        let copies = match bus.hooks.at(Point::BusPublish, || row.subject()).await {
            Ok(Pass::Duplicate { copies }) => copies,
            Ok(Pass::Unharmed | Pass::Decline) => 0,
            Ok(Pass::Drop) | Err(_) => return self.note(row, Err(Stop::Held { event_id: row.event_id })),
        };
        let sent = send(bus, row, self.last_sequence, None).await;
        let mut noted = self.note(row, receipt(row, sent).await);
        for copy in 1..=copies {
            // Under an id of its own, because the broker would recognise the repeat.
            let repeat = PendingRow { republication: row.republication + 1000 + i32::from(copy), ..row.clone() };
            let sent = send(bus, &repeat, self.last_sequence, None).await;
            match receipt(&repeat, sent).await {
                Ok(ack) if !ack.duplicate => self.last_sequence = ack.sequence,
                Ok(_) => {}
                Err(stop) => noted &= self.note(&repeat, Err(stop)),
            }
        }
        noted
    }

    /// Notes the outcome of one row; false when the batch ends here.
    fn note(&mut self, row: &PendingRow, outcome: Result<PublishAck, Stop>) -> bool {
        match outcome {
            Ok(ack) => {
                // A duplicate is a success; it consumed no sequence.
                match ack.duplicate {
                    true => self.duplicates += 1,
                    false => self.last_sequence = ack.sequence,
                }
                let sequence = i64::try_from(ack.sequence).unwrap_or(i64::MAX);
                self.receipts.push(Receipt { event_id: row.event_id, sequence });
                true
            }
            Err(stop) => {
                self.stop = Some(stop);
                false
            }
        }
    }
}

/// A message on its way, and the span of its publication.
struct Sent {
    ack: PublishAckFuture,
    span: Option<Span>,
}

async fn receipt(row: &PendingRow, sent: Result<Sent, Stop>) -> Result<PublishAck, Stop> {
    let Sent { ack, span } = sent?;
    ack.await.map_err(|error| {
        if let Some(mut span) = span {
            span.fail(error.to_string());
        }
        sort(row, &error)
    })
}

/// Publishes one event wherever the stream ends, as the outbox's relay never does.
pub(crate) async fn publish_once(bus: &Bus, row: &PendingRow) -> Result<(), String> {
    let message = PublishMessage::build().payload(row.payload.clone().into()).headers(headers(row)?);
    let sent = bus.jetstream.send_publish(row.subject.clone(), message).await.map_err(|e| crate::error::chain(&e))?;
    sent.await.map(drop).map_err(|e| crate::error::chain(&e))
}

/// Sends it, to be stored only behind this sequence and, if one is given, the message with this deduplication id.
async fn send(bus: &Bus, row: &PendingRow, expected_last: u64, before: Option<String>) -> Result<Sent, Stop> {
    let mut headers = headers(row).map_err(|error| Stop::Refused { event_id: row.event_id, error })?;
    let span = open_span(row, &headers);
    if let Some(span) = span.as_ref().filter(|_| row.republication == 0) {
        headers.insert(TRACEPARENT, span.context().to_string());
    }
    let mut message = PublishMessage::build()
        .payload(row.payload.clone().into())
        .headers(headers)
        .message_id(message_id(row))
        .expected_last_sequence(expected_last);
    if let Some(before) = before {
        message = message.expected_last_message_id(before);
    }
    let ack = bus.jetstream.send_publish(row.subject.clone(), message).await.map_err(|e| sort(row, &e))?;
    Ok(Sent { ack, span })
}

/// The span of a publication, where the event's trace is sampled. A republication, which comes much later, has one in a
/// trace of its own.
fn open_span(row: &PendingRow, headers: &HeaderMap) -> Option<Span> {
    let written: TraceContext = envelope::header(headers, TRACEPARENT)?.parse().ok()?;
    if !written.is_sampled() {
        return None;
    }
    let facts = vec![
        KeyValue::new("messaging.system", "nats"),
        KeyValue::new("messaging.operation.type", "send"),
        KeyValue::new("messaging.operation.name", "publish"),
        KeyValue::new("messaging.destination.name", row.subject.clone()),
        KeyValue::new("messaging.message.id", row.event_id.to_string()),
    ];
    let name = format!("publish {}", row.subject);
    match row.republication {
        0 => Span::start(SpanKind::Producer, name, written, facts),
        _ => Span::start_linked(SpanKind::Producer, name, written, facts),
    }
}

/// The broker's deduplication id: the event's own, except that a repeat on purpose is another message.
fn message_id(row: &PendingRow) -> String {
    match row.republication {
        0 => row.event_id.to_string(),
        n => format!("{}-r{n}", row.event_id),
    }
}

impl PendingRow {
    /// The trace that the event belongs to, if somebody collects it.
    pub(super) fn trace_id(&self) -> Option<String> {
        let stored: Map<String, Value> = serde_json::from_str(&self.headers).ok()?;
        let trace: TraceContext = stored.get(TRACEPARENT)?.as_str()?.parse().ok()?;
        trace.is_sampled().then(|| trace.trace_id())
    }

    /// What a fault may be limited to, as far as the event's headers tell it.
    pub(super) fn subject(&self) -> Subject {
        let stored = serde_json::from_str::<Map<String, Value>>(&self.headers).unwrap_or_default();
        let baggage = stored.get(BAGGAGE).and_then(Value::as_str).unwrap_or_default();
        Subject::from_baggage(self.saga_id, baggage)
    }
}

fn headers(row: &PendingRow) -> Result<HeaderMap, String> {
    let stored: Map<String, Value> = serde_json::from_str(&row.headers).map_err(|e| e.to_string())?;
    let mut headers = HeaderMap::new();
    for (name, value) in &stored {
        if let Value::String(text) = value {
            headers.insert(name.as_str(), text.as_str());
        }
    }
    headers.insert(CE_SPECVERSION, "1.0");
    headers.insert(CE_ID, row.event_id.to_string());
    headers.insert(CE_TYPE, row.event_type.as_str());
    headers.insert(CE_SUBJECT, row.aggregate_id.as_str());
    headers.insert(CE_PARTITIONKEY, row.aggregate_id.as_str());
    headers.insert(CE_SEQUENCE, row.aggregate_sequence.to_string());
    headers.insert(CE_TIME, row.created_at.format(&Rfc3339).map_err(|e| e.to_string())?);
    headers.insert("content-type", "application/json");
    if let Some(saga_id) = row.saga_id {
        headers.insert(CE_SAGAID, saga_id.to_string());
    }
    Ok(headers)
}

/// What a failed publish means. Only what is surely about this one message is a refusal.
fn sort(row: &PendingRow, error: &async_nats::error::Error<PublishErrorKind>) -> Stop {
    match error.kind() {
        PublishErrorKind::WrongLastSequence | PublishErrorKind::WrongLastMessageId => Stop::OutOfStep,
        PublishErrorKind::TimedOut => Stop::Silent(crate::error::chain(error)),
        PublishErrorKind::MaxPayloadExceeded => Stop::Refused { event_id: row.event_id, error: error.to_string() },
        PublishErrorKind::Other => match broker_code(error) {
            Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM) => {
                Stop::Refused { event_id: row.event_id, error: crate::error::chain(error) }
            }
            _ => Stop::Away(crate::error::chain(error)),
        },
        _ => Stop::Away(crate::error::chain(error)),
    }
}

fn broker_code(error: &async_nats::error::Error<PublishErrorKind>) -> Option<ErrorCode> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<jetstream::Error>().map(jetstream::Error::error_code)
}
