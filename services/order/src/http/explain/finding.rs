//! What an explanation consists of: every way an order can wait, and what has happened to it that should not have.

use saga::Trigger;
use saga_store::query::StepView;
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use utoipa::ToSchema;

use super::Known;

/// What a finding is about. The first group walks along one arrow of the saga's table, from the commit of an event to
/// the commit of the step that it sets in motion; the second is the clock's; the third is history. An order that is
/// not committed yet has no id and is not found; orders that are `COMPLETED` or `COMPENSATED` wait for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingKind {
    /// The broker cannot be reached.
    BrokerAway,
    /// The event is committed, and its service's relay has not published it yet.
    PublicationPending,
    /// An operator has paused the relay of the event's service.
    RelayPaused,
    /// No replica of the event's service leads its relay.
    NoRelay,
    /// The broker refuses this one event, and it is tried again.
    PublicationRefused,
    /// The event waits behind an earlier one of its aggregate, which the broker refuses.
    PublicationHeld,
    /// The broker refused the event so often that it is left alone.
    PublicationParked,
    /// The event is neither waiting nor known to be published.
    EventMissing,
    /// The event is published; the step has not finished with it, and nothing is known to be in its way.
    UnderWay,
    /// An operator has paused the step's consumer.
    ConsumerPaused,
    /// No replica of the step's service gives a sign of life.
    ServiceDown,
    /// The step's circuit breaker is open or half-open.
    BreakerOpen,
    /// The step has failed on the event, and tries it again after a wait.
    RetryWait,
    /// The step has given the event up.
    DeadLetter,
    /// The card processor has been asked and has not answered.
    AtGateway,
    /// The step has handled the event, and the saga goes on from there at this very moment.
    Handled,
    /// The deadline has passed, and no service has noticed yet.
    DeadlinePassed,
    /// The saga timed out; the order has to be cancelled.
    TimedOut,
    /// The order is cancelled; participants must confirm their undo.
    ReceiptsDue,
    /// The receipts are overdue: the cancellation is about to be published again.
    CompensationOverdue,
    /// The compensation is stuck until an operator resumes it.
    Stuck,
    /// A business refusal: it was an answer, not a failure.
    Refused,
    /// A step came too late and changed nothing.
    CameTooLate,
    /// Somebody injected a fault that hit the saga.
    FaultHit,
}

/// One thing that is the matter.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Finding {
    pub(super) kind: FindingKind,
    /// In one sentence.
    pub(super) what: String,
    /// Since when, where that is known.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    pub(super) since: Option<OffsetDateTime>,
    /// What an operator can do about it; null when it passes by itself, or is over.
    #[schema(required = true)]
    pub(super) remedy: Option<Remedy>,
}

/// What an operator can do.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Remedy {
    /// In one sentence.
    what: String,
    /// At which service.
    service: String,
    /// Method and path of the request that does it; null when no request can.
    #[schema(required = true)]
    request: Option<String>,
}

impl Remedy {
    pub(super) fn request(what: &str, service: &str, request: String) -> Self {
        Remedy { what: what.to_owned(), service: service.to_owned(), request: Some(request) }
    }

    pub(super) fn by_hand(what: String, service: &str) -> Self {
        Remedy { what, service: service.to_owned(), request: None }
    }
}

impl Finding {
    pub(super) fn new(kind: FindingKind, what: String, since: Option<OffsetDateTime>) -> Self {
        Finding { kind, what, since, remedy: None }
    }

    pub(super) fn remedy(self, remedy: Remedy) -> Self {
        Finding { remedy: Some(remedy), ..self }
    }
}

/// A moment in a sentence, to the second.
pub(super) fn at(moment: OffsetDateTime) -> String {
    moment.replace_nanosecond(0).unwrap_or(moment).format(&Rfc3339).unwrap_or_default()
}

/// A text of somebody else as the end of a sentence: without the full stop that it may have.
pub(super) fn quoted(text: Option<&str>) -> &str {
    text.map(|text| text.trim_end().trim_end_matches('.')).filter(|text| !text.is_empty()).unwrap_or("no reason given")
}

/// What was refused, came too late, or was injected.
pub(super) fn history(known: &Known) -> Vec<Finding> {
    let told = known.journal.iter().filter_map(|entry| {
        let by = format!("{} of {}", entry.step, entry.service);
        let reason = quoted(entry.reason.as_deref());
        let (kind, what) = match (entry.status.as_str(), known.saga.status.as_str()) {
            ("SKIPPED", _) => (FindingKind::CameTooLate, format!("{by} came too late and changed nothing: {reason}.")),
            // What still is so is told as what the order waits for.
            ("FAILED", "TIMED_OUT" | "FAILED") if driven_by_clock(known, entry) => return None,
            ("FAILED", _) if entry.event_id.is_none() => (FindingKind::Stuck, format!("{by} gave up: {reason}.")),
            ("FAILED", _) if driven_by_clock(known, entry) => {
                (FindingKind::TimedOut, format!("The order took too long: {reason}."))
            }
            ("FAILED", _) => (FindingKind::Refused, format!("{by} refused: {reason}.")),
            _ => return None,
        };
        Some(Finding::new(kind, what, Some(entry.occurred_at)))
    });
    let hits = known.fault_hits.iter().map(|hit| {
        let place =
            hit.step.as_deref().map_or_else(|| hit.service.clone(), |step| format!("{step} of {}", hit.service));
        let what = format!("A fault was injected: {} at {} in {place} (fault {}).", hit.kind, hit.point, hit.fault_id);
        Finding::new(FindingKind::FaultHit, what, Some(hit.hit_at))
    });
    told.chain(hits).collect()
}

fn driven_by_clock(known: &Known, entry: &StepView) -> bool {
    known.definition.steps.iter().any(|step| step.name == entry.step && step.on == Trigger::Deadline)
}
