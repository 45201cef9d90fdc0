//! Publishes one batch: pipelined, where each message expects the stream to end where its predecessor is stored, so that a stale
//! relay is refused; or one by one, when the stream may have some rows already.

use std::{
    collections::HashSet,
    iter,
    time::{Duration, Instant},
};

use async_nats::{
    HeaderMap, HeaderName,
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

use super::target::{Published, Stop, Target};
use crate::{
    FaultPoint, Span, TraceContext,
    bus::Bus,
    envelope::{
        self, BAGGAGE, CE_ID, CE_PARTITIONKEY, CE_SAGAID, CE_SEQUENCE, CE_SPECVERSION, CE_SUBJECT, CE_TIME, CE_TYPE,
        TRACEPARENT,
    },
    error::chain,
    outbox::{Acknowledgement, PendingRow},
};

/// The end of the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StreamPosition {
    /// The stream's creation time in nanoseconds.
    pub(super) epoch: i64,
    pub(super) last_sequence: u64,
}

/// How many round trips a batch may take.
pub(super) const ROUND_TRIPS: u16 = 100;
/// How many messages are in flight at most. In between, a batch that has taken too long ends.
const IN_FLIGHT: usize = 250;

/// JetStream as the relay's target: the stream's end as far as the relay knows it, and how to publish the next batch.
pub(super) struct JetStream<'a> {
    pub(super) bus: &'a Bus,
    pub(super) position: StreamPosition,
    /// Whether to publish one by one: after an uncertain outcome the stream may have some rows already.
    pub(super) singly: bool,
    /// How many acknowledgements of the last batch were for duplicates.
    pub(super) duplicates: u64,
    /// After this time a batch ends with what is published: well before the lease, however slow broker, database or machine are.
    /// Otherwise another relay would take over, publish the same rows, and lose the lease in the same way.
    pub(super) time: Duration,
}

#[derive(Debug)]
pub(super) enum Obstacle {
    /// An injected fault keeps this event from being published.
    Injected,
    /// The stream's last sequence differs from the expected one.
    OutOfStep,
    /// The broker is unavailable or full.
    Away(String),
    /// The broker has not answered; the outcome is unknown.
    Silent(String),
}

impl Target for JetStream<'_> {
    type Receipt = Acknowledgement;
    type Obstacle = Obstacle;

    /// Stops at the first event that is not accepted, and after some round trips or some time.
    async fn publish(&mut self, rows: &[PendingRow]) -> Published<Acknowledgement, Obstacle> {
        self.duplicates = 0;
        let mut acks = Vec::with_capacity(rows.len());
        let outcome = match self.singly || rows.len() == 1 {
            true => self.one_by_one(rows, &mut acks).await,
            false => self.pipelined(rows, &mut acks).await,
        };
        Published { receipts: acks, stops: outcome.err().into_iter().collect() }
    }
}

impl JetStream<'_> {
    /// Sends messages while earlier ones are in flight, except of the same aggregate: if the first were refused or lost on its way,
    /// the second might be accepted, because a foreign message or one of a former relay has taken the place of the first.
    async fn pipelined(&mut self, rows: &[PendingRow], acks: &mut Vec<Acknowledgement>) -> Result<(), Stop<Obstacle>> {
        let (began, time) = (Instant::now(), self.time);
        let parts = runs(rows).flat_map(|run| run.chunks(IN_FLIGHT)).take(ROUND_TRIPS.into());
        for run in parts.take_while(|_| began.elapsed() <= time) {
            // Sending only queues a message.
            let mut sent = Vec::with_capacity(run.len());
            for (expected_last, row) in (self.position.last_sequence..).zip(run) {
                sent.push((row, send(self.bus, row, expected_last).await));
                if sent.last().is_some_and(|(_, outcome)| outcome.is_err()) {
                    break;
                }
            }
            for (row, sent) in sent {
                acks.push(self.record(row, &publish_ack(row, sent).await?));
            }
        }
        Ok(())
    }

    async fn one_by_one(&mut self, rows: &[PendingRow], acks: &mut Vec<Acknowledgement>) -> Result<(), Stop<Obstacle>> {
        let (began, time) = (Instant::now(), self.time);
        for row in rows.iter().take_while(|_| began.elapsed() <= time) {
            let copies = match self.bus.faults.at(FaultPoint::BusPublish, || row.subject()).await {
                Ok(Pass::Duplicate { copies }) => copies,
                Ok(Pass::Unharmed | Pass::Decline) => 0,
                Ok(Pass::Drop) | Err(_) => return Err(not_now(row, Obstacle::Injected)),
            };
            let sent = send(self.bus, row, self.position.last_sequence).await;
            acks.push(self.record(row, &publish_ack(row, sent).await?));
            for copy in 1..=copies {
                // With another message id, because the broker would deduplicate the copy.
                let repeat = PendingRow { republication: row.republication + 1000 + i32::from(copy), ..row.clone() };
                let sent = send(self.bus, &repeat, self.position.last_sequence).await;
                let ack = publish_ack(&repeat, sent).await?;
                if !ack.duplicate {
                    self.position.last_sequence = ack.sequence;
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, row: &PendingRow, ack: &PublishAck) -> Acknowledgement {
        // A duplicate is a success without a new sequence.
        match ack.duplicate {
            true => self.duplicates += 1,
            false => self.position.last_sequence = ack.sequence,
        }
        let sequence = i64::try_from(ack.sequence).unwrap_or(i64::MAX);
        Acknowledgement { event_id: row.event_id, sequence }
    }
}

/// Splits the rows so that no part has two events of one aggregate.
pub fn runs(rows: &[PendingRow]) -> impl Iterator<Item = &[PendingRow]> {
    let mut rest = rows;
    iter::from_fn(move || {
        let mut aggregates = HashSet::new();
        let end = rest.iter().position(|row| !aggregates.insert(&row.aggregate_id)).unwrap_or(rest.len());
        rest.split_off(..end).filter(|run| !run.is_empty())
    })
}

struct Sent {
    ack: PublishAckFuture,
    span: Option<Span>,
}

/// Awaits the acknowledgement; an error also ends the span.
async fn publish_ack(row: &PendingRow, sent: Result<Sent, Stop<Obstacle>>) -> Result<PublishAck, Stop<Obstacle>> {
    let Sent { ack, span } = sent?;
    ack.await.map_err(|error| {
        if let Some(mut span) = span {
            span.fail(error.to_string());
        }
        classify(row, &error)
    })
}

/// Publishes one event without an expected sequence, which the relay never does.
pub(crate) async fn publish_once(bus: &Bus, row: &PendingRow) -> Result<(), String> {
    let message = PublishMessage::build().payload(row.payload.clone().into()).headers(headers(row)?);
    let sent = bus.jetstream.send_publish(row.subject.clone(), message).await.map_err(|e| chain(&e))?;
    sent.await.map(drop).map_err(|e| chain(&e))
}

/// Sends a row, to be stored only if the stream ends at this sequence.
async fn send(bus: &Bus, row: &PendingRow, expected_last: u64) -> Result<Sent, Stop<Obstacle>> {
    let mut headers = headers(row).map_err(|error| Stop::Refused { event_id: row.event_id, error })?;
    let span = open_span(row, &headers);
    if let Some(span) = span.as_ref().filter(|_| row.republication == 0) {
        headers.insert(TRACEPARENT, span.context().to_string());
    }
    let message = PublishMessage::build()
        .payload(row.payload.clone().into())
        .headers(headers)
        .message_id(message_id(row))
        .expected_last_sequence(expected_last);
    let ack = bus.jetstream.send_publish(row.subject.clone(), message).await.map_err(|e| classify(row, &e))?;
    Ok(Sent { ack, span })
}

/// The span of a publication if the event's trace is sampled. A republication, which comes much later, gets a new, linked trace.
fn open_span(row: &PendingRow, headers: &HeaderMap) -> Option<Span> {
    let written: TraceContext = envelope::header(headers, TRACEPARENT)?.parse().ok()?;
    if !written.is_sampled() {
        return None;
    }
    let attributes = vec![
        KeyValue::new("messaging.system", "nats"),
        KeyValue::new("messaging.operation.type", "send"),
        KeyValue::new("messaging.operation.name", "publish"),
        KeyValue::new("messaging.destination.name", row.subject.clone()),
        KeyValue::new("messaging.message.id", row.event_id.to_string()),
    ];
    let name = format!("publish {}", row.subject);
    match row.republication {
        0 => Span::start(SpanKind::Producer, name, written, attributes),
        _ => Span::start_linked(SpanKind::Producer, name, written, attributes),
    }
}

/// The broker's deduplication id: the event's id, with a suffix for a republication.
fn message_id(row: &PendingRow) -> String {
    match row.republication {
        0 => row.event_id.to_string(),
        n => format!("{}-r{n}", row.event_id),
    }
}

impl PendingRow {
    /// The event's trace, if it is sampled.
    pub(super) fn trace_id(&self) -> Option<String> {
        let stored: Map<String, Value> = serde_json::from_str(&self.headers).ok()?;
        let trace: TraceContext = stored.get(TRACEPARENT)?.as_str()?.parse().ok()?;
        trace.is_sampled().then(|| trace.trace_id())
    }

    /// The scope of faults that may hit the event, as far as its headers name it.
    pub(super) fn subject(&self) -> Subject {
        let stored = serde_json::from_str::<Map<String, Value>>(&self.headers).unwrap_or_default();
        let baggage = stored.get(BAGGAGE).and_then(Value::as_str).unwrap_or_default();
        Subject::from_baggage(self.saga_id, baggage)
    }
}

/// Those stored with the event, and those of its row. What has an owner already is moved: a message has fourteen.
fn headers(row: &PendingRow) -> Result<HeaderMap, String> {
    let stored: Map<String, Value> = serde_json::from_str(&row.headers).map_err(|e| e.to_string())?;
    let mut headers = HeaderMap::new();
    for (name, value) in stored {
        if let Value::String(text) = value {
            headers.insert(name, text);
        }
    }
    let mut set = |name, text: String| headers.insert(HeaderName::from_static(name), text);
    set(CE_SPECVERSION, "1.0".to_owned());
    set(CE_ID, row.event_id.to_string());
    set(CE_TYPE, row.event_type.clone());
    set(CE_SUBJECT, row.aggregate_id.clone());
    set(CE_PARTITIONKEY, row.aggregate_id.clone());
    set(CE_SEQUENCE, row.aggregate_sequence.to_string());
    set(CE_TIME, row.created_at.format(&Rfc3339).map_err(|e| e.to_string())?);
    set("content-type", "application/json".to_owned());
    if let Some(saga_id) = row.saga_id {
        set(CE_SAGAID, saga_id.to_string());
    }
    Ok(headers)
}

/// Classifies a failed publish. Only an error that is certainly about this message is a refusal.
fn classify(row: &PendingRow, error: &async_nats::error::Error<PublishErrorKind>) -> Stop<Obstacle> {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => not_now(row, Obstacle::OutOfStep),
        PublishErrorKind::TimedOut => not_now(row, Obstacle::Silent(chain(error))),
        PublishErrorKind::MaxPayloadExceeded => too_large(row, "the broker", error),
        PublishErrorKind::Other if is_too_large(error) => too_large(row, "its stream", error),
        _ => not_now(row, Obstacle::Away(chain(error))),
    }
}

fn not_now(row: &PendingRow, obstacle: Obstacle) -> Stop<Obstacle> {
    Stop::NotNow { event_id: row.event_id, obstacle }
}

fn too_large(row: &PendingRow, of: &str, error: &async_nats::error::Error<PublishErrorKind>) -> Stop<Obstacle> {
    let bytes = row.payload.len();
    let error = format!("the event, with a body of {bytes} bytes, is larger than {of} accepts: {}", chain(error));
    Stop::Refused { event_id: row.event_id, error }
}

fn is_too_large(error: &async_nats::error::Error<PublishErrorKind>) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<jetstream::Error>());
    let too_large = [ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM];
    source.is_some_and(|answer| too_large.contains(&answer.error_code()))
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    fn row(aggregate_id: &str) -> PendingRow {
        PendingRow {
            event_id: Uuid::now_v7(),
            position: 0,
            aggregate_id: aggregate_id.to_owned(),
            aggregate_sequence: 1,
            event_type: String::new(),
            subject: String::new(),
            headers: "{}".to_owned(),
            payload: "{}".to_owned(),
            saga_id: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
            republication: 0,
            attempts: 0,
        }
    }

    #[test]
    fn of_each_aggregate_one_event_is_in_flight() {
        let split = |aggregates: &str| -> Vec<String> {
            let rows: Vec<_> = aggregates.split_terminator("").skip(1).map(row).collect();
            runs(&rows).map(|run| run.iter().map(|row| row.aggregate_id.as_str()).collect()).collect()
        };
        assert_eq!(split(""), [""; 0]);
        assert_eq!(split("abc"), ["abc"]);
        assert_eq!(split("aabcbaac"), ["a", "abc", "ba", "ac"]);
        assert_eq!(split("abab"), ["ab", "ab"]);
    }
}
