//! What stands in the way of an awaited step, along the way that its event goes: outbox, relay, stream, consumer, step.

use contracts::{
    ORDER,
    order_fulfillment::{PROCESS_PAYMENT, REFUND_PAYMENT},
};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{Awaited, Known};
use crate::store::Fact;

/// What a finding is about, in the order of the way that an event goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingKind {
    /// The broker cannot be reached.
    BrokerAway,
    /// An operator has paused the relay of the event's service.
    RelayPaused,
    /// No replica of the event's service leads its relay.
    NoRelay,
    /// The event is committed, and its service's relay has not published it yet.
    PublicationPending,
    /// The broker refuses this one event, and it is tried again.
    PublicationRefused,
    /// The event waits behind an earlier one of its aggregate, which the broker refuses.
    PublicationHeld,
    /// The broker refused the event so often that it is left alone.
    PublicationParked,
    /// The event is neither waiting nor known to be published.
    EventMissing,
    /// The step has given the event up.
    DeadLetter,
    /// An operator has paused the step's consumer.
    ConsumerPaused,
    /// No replica of the step's service gives a sign of life.
    ServiceDown,
    /// The step's circuit breaker is open or half-open.
    BreakerOpen,
    /// The step has failed on the event, and tries it again after a wait.
    RetryWait,
    /// The card processor has been asked and has not answered.
    AtGateway,
    /// The step has handled the event, and the saga goes on from there at this very moment.
    Handled,
    /// The event is published; the step has not finished with it, and nothing is known to be in its way.
    UnderWay,
}

/// One thing that is the matter.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Finding {
    kind: FindingKind,
    /// In one sentence.
    pub(super) what: String,
    /// Since when, where that is known.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    since: Option<OffsetDateTime>,
    /// What an operator can do about it; null when it passes by itself.
    #[schema(required = true)]
    remedy: Option<Remedy>,
}

/// What an operator can do.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Remedy {
    /// In one sentence.
    what: String,
    /// At which service.
    service: String,
    /// Method and path of the request that does it; null when no request can.
    #[schema(required = true)]
    request: Option<String>,
}

impl Finding {
    fn new(kind: FindingKind, since: Option<OffsetDateTime>, what: String) -> Self {
        Finding { kind, what, since, remedy: None }
    }

    fn remedy(self, service: &str, what: &str, request: impl Into<Option<String>>) -> Self {
        let remedy = Remedy { what: what.to_owned(), service: service.to_owned(), request: request.into() };
        Finding { remedy: Some(remedy), ..self }
    }
}

/// What holds up the steps that are awaited, the nearest first.
pub(super) fn in_the_way(known: &Known, awaited: &[Awaited]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = awaited.iter().flat_map(|step| of_step(known, step)).collect();
    if !known.broker_is_there {
        let what = "The broker is away: nothing is published and nothing arrives until it is back.".to_owned();
        let finding = Finding::new(FindingKind::BrokerAway, None, what);
        findings.push(finding.remedy("nats", "Start the broker again; everything goes on by itself then.", None));
    }
    findings.sort_by(|a, b| (a.kind, &a.what).cmp(&(b.kind, &b.what)));
    // Two steps may wait for the same event.
    findings.dedup_by(|a, b| a.what == b.what);
    findings
}

fn of_step(known: &Known, awaited: &Awaited) -> Vec<Finding> {
    let Awaited { step, service, on, .. } = awaited;
    let of_event = |kinds: &[&str]| {
        let mut facts = known.facts.iter().filter(|fact| fact.event_id == Some(awaited.event_id));
        facts.find(|fact| fact.service == awaited.publisher && kinds.contains(&fact.kind.as_str()))
    };
    let waits = of_event(&["PENDING", "REFUSED", "HELD", "PARKED"]).is_some();
    let published = of_event(&["PUBLISHED"]);
    let mut findings: Vec<Finding> =
        known.facts.iter().filter_map(|fact| finding(known, awaited, waits, fact)).collect();
    findings.extend(at_gateway(known, awaited));
    if findings.iter().any(|finding| finding.kind == FindingKind::Handled) {
        findings.retain(|finding| finding.kind == FindingKind::Handled);
    } else if let (true, Some(published)) = (findings.is_empty(), published) {
        let stream = published.detail.as_deref().unwrap_or_default();
        let what = format!("{on} is in the stream {stream}; {step} of {service} has not finished with it yet.");
        findings.push(Finding::new(FindingKind::UnderWay, published.since, what));
    }
    if !waits && published.is_none() {
        let what = format!(
            "{on} is neither in the outbox of {publisher} nor among the events that {publisher} has published: it is lost, \
            or was discarded by an operator, or is so old that it is not kept any more.",
            publisher = awaited.publisher
        );
        findings.push(Finding::new(FindingKind::EventMissing, None, what));
    }
    findings
}

/// What a fact means for an awaited step, whose event perhaps waits to be published; none when it is about something else.
fn finding(known: &Known, awaited: &Awaited, waits: bool, fact: &Fact) -> Option<Finding> {
    let Awaited { step, service, on, publisher, .. } = awaited;
    let (consumer, attempts) = (fact.consumer.as_deref().unwrap_or_default(), fact.attempts);
    let (of_event, of_consumer) = (fact.event_id == Some(awaited.event_id), consumer == awaited.consumer);
    let (of_publisher, of_service) = (fact.service == *publisher && waits, fact.service == *service);
    let why = fact.detail.as_deref().map_or("no reason given", |why| why.trim_end().trim_end_matches('.'));
    let id = fact.reference.as_deref().unwrap_or_default();
    let new = |kind, what| Finding::new(kind, fact.since, what);
    Some(match fact.kind.as_str() {
        "RELAY_PAUSED" if of_publisher => {
            let what = format!("An operator has paused the relay of {publisher}.");
            let request = "POST /api/admin/relay/resume".to_owned();
            new(FindingKind::RelayPaused, what).remedy(publisher, "Resume the relay.", request)
        }
        "RELAY_GONE" if of_publisher && known.broker_is_there => {
            let what = format!("No replica of {publisher} leads its relay: none is alive, or none reaches the broker.");
            new(FindingKind::NoRelay, what).remedy(publisher, &format!("Start a replica of {publisher}."), None)
        }
        "PENDING" if of_event => new(
            FindingKind::PublicationPending,
            format!("{on} is committed and waits to be published by the relay of {publisher}."),
        ),
        "REFUSED" if of_event => new(
            FindingKind::PublicationRefused,
            format!("The broker has refused {on} {attempts} times, at last with: {why}. It is tried again."),
        ),
        "HELD" if of_event => new(
            FindingKind::PublicationHeld,
            format!("{on} waits behind {why}, an earlier event of the same thing that the broker refuses."),
        ),
        "PARKED" if of_event => {
            let what = format!("{on} is parked: the broker refused it {attempts} times, at last with: {why}.");
            let request = format!("POST /api/admin/outbox/{}/requeue", awaited.event_id);
            let remedy = "Let the event be tried again, once its cause is mended.";
            new(FindingKind::PublicationParked, what).remedy(publisher, remedy, request)
        }
        "DEAD_LETTER" if of_event && of_consumer => {
            let state = fact.state.as_deref().unwrap_or_default();
            let what =
                format!("{on} is a dead letter of {step} of {service}, {state} after {attempts} replays: {why}.");
            let request = format!("POST /api/admin/dlq/{id}/replay");
            new(FindingKind::DeadLetter, what).remedy(service, "Replay it, once its cause is mended.", request)
        }
        "CONSUMER_PAUSED" if of_consumer => {
            let what = format!("An operator has paused {step} of {service}: it takes no event.");
            let request = format!("POST /api/admin/consumers/{step}/resume");
            new(FindingKind::ConsumerPaused, what).remedy(service, "Resume it.", request)
        }
        // A living service keeps its relay's lease. Not so while the broker is away; and order lives, since it answers.
        "RELAY_GONE" if of_service && *service != ORDER.0 && known.broker_is_there => {
            let what = format!("No replica of {service} keeps its lease, so none takes {step}.");
            new(FindingKind::ServiceDown, what).remedy(service, &format!("Start a replica of {service}."), None)
        }
        "BREAKER" if of_service && consumer == *step => {
            let state = fact.state.as_deref().unwrap_or("open");
            let what = format!("The circuit breaker of {step} of {service} is {state} in replica {id}: {why}.");
            let remedy = "It closes by itself when its probes succeed; or reset it.";
            let request = format!("POST /api/admin/breakers/{step}/reset");
            new(FindingKind::BreakerOpen, what).remedy(service, remedy, request)
        }
        "FAILED" if of_event && of_consumer && attempts == 0 => new(
            FindingKind::RetryWait,
            format!(
                "A replica of {service} cannot read {on} for {step}: {why}. It goes back until another build takes it."
            ),
        ),
        "FAILED" if of_event && of_consumer => new(
            FindingKind::RetryWait,
            format!("{step} of {service} has failed on {on} {attempts} times, at last with: {why}. It is tried again."),
        ),
        "HANDLED" if of_event && of_consumer => new(
            FindingKind::Handled,
            format!("{step} of {service} has handled {on}; the saga goes on from there at this moment."),
        ),
        _ => return None,
    })
}

fn at_gateway(known: &Known, awaited: &Awaited) -> Option<Finding> {
    let payment = known.at_gateway.as_ref()?;
    let id = payment.payment_id;
    let what = match (awaited.step, payment.intent.as_str()) {
        (step, "CHARGE") if step == PROCESS_PAYMENT.name => {
            format!("The card processor is asked to charge payment {id}")
        }
        (step, "UNDO") if step == REFUND_PAYMENT.name => {
            format!("The card processor is asked to give payment {id} back, if it was taken")
        }
        _ => return None,
    };
    let finding = Finding::new(FindingKind::AtGateway, Some(payment.since), format!("{what}, and has not answered."));
    let remedy = "It is asked again by itself, under the same key. Look at it.";
    Some(finding.remedy(awaited.service, remedy, format!("GET /api/payments/{id}")))
}
