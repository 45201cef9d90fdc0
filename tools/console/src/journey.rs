//! One order in the eye: what each step did, how long its event travelled, what hit it, and the state of order, stock and payment
//! after it. Read with the auditor's rights in one snapshot; events carry what the auditor may not read, so payloads are not
//! here ([`crate::suite`] asks the services for them).

mod read;
mod states;

use contracts::order_fulfillment::{OrderCancelled, SAGA};
use saga::{Event as _, Status, Step};
use serde::Serialize;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

pub(crate) use read::find;
pub use read::read;
pub use states::States;

/// An order with its saga, from its first event to what is left.
#[derive(Debug, Clone, Serialize)]
pub struct Journey {
    pub order: Order,
    /// `None` after the saga was purged.
    pub saga: Option<Saga>,
    /// The journal's entries, in its order.
    pub entries: Vec<Entry>,
    /// The steps that are still to be taken, as the table of steps has them, in its order.
    pub left: Vec<Left>,
    pub lines: Vec<Line>,
    pub dead_letters: Vec<DeadLetter>,
    /// Faults that hit the saga, also where no step completed afterwards.
    pub hits: Vec<Hit>,
}

#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct Order {
    pub order_id: Uuid,
    pub customer_id: String,
    pub status: String,
    /// In minor units of the currency.
    pub total_amount: i64,
    pub currency: String,
    pub saga_id: Uuid,
    pub cancel_reason: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Null where the participant has no row for the order.
    pub stock_status: Option<String>,
    pub payment_status: Option<String>,
    pub decline_code: Option<String>,
}

#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct Saga {
    pub status: String,
    pub correlation_id: String,
    pub trace_id: String,
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub deadline: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub compensation_deadline: Option<OffsetDateTime>,
    pub compensation_attempts: i16,
    #[serde(with = "time::serde::rfc3339::option")]
    pub completed_at: Option<OffsetDateTime>,
    pub failure_reason: Option<String>,
    /// The services whose confirmation of their undo is missing.
    pub receipts_due: Vec<String>,
}

/// One entry of the journal, and the way of the event that it published.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub position: i32,
    pub step: String,
    pub service: String,
    /// `FORWARD` or `COMPENSATION`.
    pub direction: String,
    /// `COMPLETED`, `FAILED` (a refusal), `COMPENSATED` or `SKIPPED` (too late).
    pub status: String,
    pub event_type: String,
    pub event_id: Option<Uuid>,
    #[serde(with = "time::serde::rfc3339")]
    pub occurred_at: OffsetDateTime,
    pub reason: Option<String>,
    pub fault: Option<String>,
    /// The steps that undo this one.
    pub undone_by: &'static [&'static str],
    /// `None` when nothing was published, or when the event is no longer kept.
    pub publication: Option<Publication>,
    /// The consumers that have processed the event.
    pub readers: Vec<Reader>,
    pub after: States,
}

/// Where an event is, or was.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct Publication {
    #[serde(skip)]
    event_id: Uuid,
    /// `PENDING`, `PARKED` or `PUBLISHED`.
    pub state: String,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub published_at: Option<OffsetDateTime>,
    /// Failed attempts to publish it.
    pub attempts: i32,
    pub last_error: Option<String>,
    /// How often it was published again, because the broker had lost it or nobody answered it in time.
    pub republication: i32,
}

/// A consumer that has processed an event.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct Reader {
    #[serde(skip)]
    event_id: Uuid,
    pub consumer: String,
    #[serde(with = "time::serde::rfc3339")]
    pub processed_at: OffsetDateTime,
    /// Further deliveries of the event, which it dropped.
    pub duplicates: i32,
}

/// A step that is still to be taken.
#[derive(Debug, Clone, Serialize)]
pub struct Left {
    pub step: &'static str,
    pub service: Option<&'static str>,
    /// Its event is on its way; otherwise an earlier step is taken first.
    pub is_awaited: bool,
    /// Failed attempts to apply the awaited event, and the latest reason.
    pub attempts: i32,
    pub last_error: Option<String>,
}

#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct Line {
    pub sku: String,
    pub quantity: i64,
    /// In minor units of the order's currency.
    pub unit_price: i64,
}

#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct DeadLetter {
    #[serde(skip)]
    event_id: Uuid,
    pub service: String,
    pub dead_letter_id: Uuid,
    pub step: String,
    pub event_type: String,
    pub reason: String,
    pub status: String,
    pub attempts: i32,
}

/// A fault that hit the saga.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct Hit {
    pub service: String,
    pub step: Option<String>,
    pub point: String,
    pub kind: String,
    #[serde(with = "time::serde::rfc3339")]
    pub hit_at: OffsetDateTime,
}

/// How long each part of an event's way took, from the commit that published it to the commit of a step that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops {
    /// In the outbox, until the relay had the broker's acknowledgement.
    pub outbox: Duration,
    /// In the stream, and in the step that claimed it, until its inbox row.
    pub transit: Duration,
}

impl Entry {
    /// The hops of the event to one of its readers; `None` while it is not published.
    pub fn hops(&self, reader: &Reader) -> Option<Hops> {
        let publication = self.publication.as_ref()?;
        // The broker delivers before the relay has recorded its acknowledgement.
        let published_at = publication.published_at?.min(reader.processed_at);
        Some(Hops { outbox: published_at - publication.created_at, transit: reader.processed_at - published_at })
    }
}

/// A saga's row in the table of steps.
pub(crate) fn step_of(name: &str) -> Option<&'static Step> {
    SAGA.steps.iter().copied().find(|step| step.name == name)
}

/// The steps that are left, in the table's order: those whose event is published or on its way and not processed, and those that
/// are certain to follow: while the saga goes forward, the forward steps; once it is being undone, the compensations.
fn left(status: Option<&str>, entries: &[Entry], dead_letters: &[DeadLetter]) -> Vec<Left> {
    let is = |of: &[Status]| of.iter().any(|of| Some(of.as_str()) == status);
    if status.is_none() || is(&[Status::Compensated]) {
        return Vec::new();
    }
    let was_refused = entries.iter().any(|entry| entry.status == "FAILED");
    let goes_forward = is(&[Status::Started, Status::InProgress]) && !was_refused;
    let is_coordinated = entries.iter().all(|entry| entry.event_id.is_none());
    let is_cancelled = entries.iter().any(|entry| states::is_event(&entry.event_type, OrderCancelled::TYPE));
    let is_to_be_undone = !goes_forward && !is(&[Status::Completed]) && (is_coordinated || !is_cancelled);
    let is_left = |step: &Step, is_awaited: bool| {
        let is_forward = step.number > 0 && !step.is_compensating();
        let is_taken = entries.iter().any(|entry| entry.step == step.name);
        is_awaited || !is_taken && (goes_forward && is_forward || is_to_be_undone && step.is_compensation())
    };
    let steps = SAGA.steps.iter().copied().map(|step| (step, is_awaited(step, entries, dead_letters)));
    steps
        .filter(|(step, is_awaited)| is_left(step, *is_awaited))
        .map(|(step, is_awaited)| Left {
            step: step.name,
            service: step.service.map(|service| service.0),
            is_awaited,
            attempts: 0,
            last_error: None,
        })
        .collect()
}

/// Whether the latest event that triggers the step is neither processed by it nor given up. A compensation that is retried
/// publishes the same cancellation again, so the earlier ones do not count.
fn is_awaited(step: &Step, entries: &[Entry], dead_letters: &[DeadLetter]) -> bool {
    let Some(event) = step.consumes() else { return false };
    let triggers = |entry: &Entry| entry.event_id.is_some() && states::is_event(&entry.event_type, event);
    let Some(at) = entries.iter().rposition(triggers) else { return false };
    let is_read = entries[at].readers.iter().any(|reader| reader.consumer == step.consumer());
    // Inbox rows are kept less long than the journal.
    let is_taken = entries[at..].iter().any(|entry| entry.step == step.name);
    let is_discarded = dead_letters.iter().any(|letter| {
        Some(letter.event_id) == entries[at].event_id && letter.step == step.name && letter.status == "DISCARDED"
    });
    !is_read && !is_taken && !is_discarded
}
