//! What stands in the way of the events of an order: along the arrows that it waits on, and elsewhere.

use contracts::{
    ORDER,
    order_fulfillment::{PROCESS_PAYMENT, REFUND_PAYMENT},
};
use uuid::Uuid;

use super::{
    Known,
    arrows::Arrow,
    finding::{Finding, FindingKind, Remedy, at, quoted},
};
use crate::store::Fact;

/// An event on its way.
#[derive(Clone, Copy)]
struct Event<'a> {
    id: Uuid,
    name: &'a str,
    publisher: &'a str,
}

impl Fact {
    /// The event's name, without its version.
    fn event_name(&self) -> &str {
        self.event_type.as_deref().and_then(|name| name.split('.').next()).unwrap_or("an event")
    }

    fn consumer(&self) -> &str {
        self.consumer.as_deref().unwrap_or_default()
    }

    /// The step that the consumer takes.
    fn step(&self) -> &str {
        self.consumer().strip_prefix(&format!("{}-", self.service)).unwrap_or(self.consumer())
    }

    fn is_of(&self, arrow: &Arrow<'_>) -> bool {
        self.consumer() == arrow.step.consumer() && self.event_id == Some(arrow.event_id)
    }

    fn waits_to_be_published(&self) -> bool {
        matches!(self.kind.as_str(), "PENDING" | "REFUSED" | "HELD" | "PARKED")
    }
}

impl Known {
    fn fact(&self, service: &str, kind: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.service == service && fact.kind == kind)
    }

    fn facts_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Fact> {
        self.facts.iter().filter(move |fact| fact.kind == kind)
    }
}

/// What holds up the steps that are awaited, in the order of the way that an event goes.
pub(super) fn of_awaited(known: &Known, awaited: &[Arrow<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !awaited.is_empty() && !known.broker_is_there {
        let what = "The broker is away: order is not connected to it. Events wait in the outboxes and lose nothing.";
        let remedy = Remedy::by_hand("Start the broker again; everything goes on by itself then.".to_owned(), "nats");
        findings.push(Finding::new(FindingKind::BrokerAway, what.to_owned(), None).remedy(remedy));
    }
    let mut told = Vec::new();
    for arrow in awaited {
        let Arrow { event_id, event, publisher, .. } = *arrow;
        if !told.contains(&event_id) {
            told.push(event_id);
            findings.extend(publication(known, Event { id: event_id, name: event, publisher }));
        }
        findings.extend(taking(known, arrow));
    }
    findings
}

/// What holds up other events of the saga: those that end it, and those of earlier steps.
pub(super) fn of_others(known: &Known, awaited: &[Arrow<'_>]) -> Vec<Finding> {
    let told = |fact: &&Fact| awaited.iter().any(|arrow| fact.is_of(arrow));
    let unpublished = known.facts.iter().filter(|fact| fact.waits_to_be_published());
    let unpublished = unpublished.filter(|fact| !awaited.iter().any(|arrow| fact.event_id == Some(arrow.event_id)));
    let publications = unpublished.flat_map(|fact| {
        let id = fact.event_id.unwrap_or_default();
        publication(known, Event { id, name: fact.event_name(), publisher: &fact.service })
    });
    let dead = known.facts_of("DEAD_LETTER").filter(|fact| !told(fact)).map(dead_letter);
    let failed = known.facts_of("FAILED").filter(|fact| !told(fact)).map(|fact| {
        let event = known.journal.iter().find(|entry| entry.event_id == fact.event_id);
        let event = event.and_then(|entry| entry.event_type.split('.').next()).unwrap_or("an event");
        retry(known, fact, event)
    });
    publications.chain(dead).chain(failed).collect()
}

/// From the commit of the event to its place in the stream.
fn publication(known: &Known, event: Event<'_>) -> Vec<Finding> {
    let of_event = |fact: &&Fact| fact.event_id == Some(event.id) && fact.service == event.publisher;
    let mut facts = known.facts.iter().filter(of_event);
    let Some(fact) = facts.clone().find(|fact| fact.waits_to_be_published()) else {
        let published = facts.any(|fact| fact.kind == "PUBLISHED");
        return if published { Vec::new() } else { vec![missing(event)] };
    };
    let mut findings = relay(known, event.publisher);
    let error = quoted(fact.detail.as_deref());
    let (kind, what) = match fact.kind.as_str() {
        "PARKED" => (
            FindingKind::PublicationParked,
            format!("{} is parked: the broker refused it {} times, at last with: {error}.", event.name, fact.attempts),
        ),
        "REFUSED" => (
            FindingKind::PublicationRefused,
            format!(
                "The broker has refused {} {} times, at last with: {error}. It is tried again.",
                event.name, fact.attempts
            ),
        ),
        "HELD" => (
            FindingKind::PublicationHeld,
            format!("{} waits behind {error}, an earlier event of the same thing that the broker refuses.", event.name),
        ),
        _ => (FindingKind::PublicationPending, pending(known, event, fact)),
    };
    let finding = Finding::new(kind, what, fact.since);
    findings.push(match kind {
        FindingKind::PublicationParked => {
            let request = format!("POST /api/admin/outbox/{}/requeue", event.id);
            finding.remedy(Remedy::request(
                "Let the event be tried again, once its cause is mended.",
                event.publisher,
                request,
            ))
        }
        _ => finding,
    });
    findings
}

fn pending(known: &Known, event: Event<'_>, fact: &Fact) -> String {
    let Event { name, publisher, .. } = event;
    if fact.since.is_none() {
        return format!(
            "{name} was published before, and waits to be published once more by the relay of {publisher}."
        );
    }
    match known.fact(publisher, "RECEIPT").and_then(|receipt| receipt.since) {
        Some(last) => format!(
            "{name} is committed and waits to be published by the relay of {publisher}, whose last receipt from the \
            broker is of {}.",
            at(last)
        ),
        None => format!(
            "{name} is committed and waits to be published by the relay of {publisher}, which has had no receipt from \
            the broker yet."
        ),
    }
}

fn missing(event: Event<'_>) -> Finding {
    let what = format!(
        "{} is neither in the outbox of {publisher} nor among the events that {publisher} has published: it is lost, \
        or was discarded by an operator, or went out without an outbox, or is so old that it is not kept any more.",
        event.name,
        publisher = event.publisher
    );
    Finding::new(FindingKind::EventMissing, what, None)
}

/// Why the relay of a service publishes nothing.
fn relay(known: &Known, service: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if known.fact(service, "RELAY_PAUSED").is_some() {
        let what =
            format!("An operator has paused the relay of {service}: nothing that {service} commits is published.");
        let request = "POST /api/admin/relay/resume".to_owned();
        let remedy = Remedy::request("Resume the relay.", service, request);
        findings.push(Finding::new(FindingKind::RelayPaused, what, None).remedy(remedy));
    }
    if let (Some(gone), true) = (known.fact(service, "RELAY_GONE"), known.broker_is_there) {
        let what = format!("No replica of {service} leads its relay: none is alive, or none reaches the broker.");
        let remedy = Remedy::by_hand(format!("Start a replica of {service}."), service);
        findings.push(Finding::new(FindingKind::NoRelay, what, gone.since).remedy(remedy));
    }
    findings
}

/// From the stream to the commit of the step.
fn taking(known: &Known, arrow: &Arrow<'_>) -> Vec<Finding> {
    let (step, service, event) = (arrow.step.name, arrow.service.0, arrow.event);
    if let Some(handled) = known.facts_of("HANDLED").find(|fact| fact.is_of(arrow)) {
        let what = format!("{step} of {service} has handled {event}; the saga goes on from there at this moment.");
        return vec![Finding::new(FindingKind::Handled, what, handled.since)];
    }
    let mut findings: Vec<Finding> =
        known.facts_of("DEAD_LETTER").filter(|fact| fact.is_of(arrow)).map(dead_letter).collect();
    findings.extend(consumer_paused(known, arrow));
    findings.extend(service_down(known, arrow));
    findings.extend(breakers(known, arrow));
    findings.extend(known.facts_of("FAILED").filter(|fact| fact.is_of(arrow)).map(|fact| retry(known, fact, event)));
    findings.extend(at_gateway(known, arrow));
    let published = known.facts_of("PUBLISHED").find(|fact| fact.event_id == Some(arrow.event_id));
    if let (true, Some(published)) = (findings.is_empty(), published) {
        let stream = published.detail.as_deref().unwrap_or_default();
        let what = format!("{event} is in the stream {stream}; {step} of {service} has not finished with it yet.");
        findings.push(Finding::new(FindingKind::UnderWay, what, published.since));
    }
    findings
}

fn consumer_paused(known: &Known, arrow: &Arrow<'_>) -> Option<Finding> {
    let (step, service) = (arrow.step.name, arrow.service.0);
    let paused = known.facts_of("CONSUMER_PAUSED").find(|fact| fact.consumer() == arrow.step.consumer())?;
    let what = format!("An operator has paused {step} of {service}: it takes no event.");
    let remedy = Remedy::request("Resume it.", service, format!("POST /api/admin/consumers/{step}/resume"));
    Some(Finding::new(FindingKind::ConsumerPaused, what, paused.since).remedy(remedy))
}

/// A living service keeps its relay's lease. Not so while the broker is away; and order lives, since it answers.
fn service_down(known: &Known, arrow: &Arrow<'_>) -> Option<Finding> {
    if arrow.service == ORDER || !known.broker_is_there {
        return None;
    }
    let (step, service) = (arrow.step.name, arrow.service.0);
    let gone = known.fact(service, "RELAY_GONE")?;
    let what = format!(
        "No replica of {service} keeps its lease: none is alive, or none reaches the broker. So nobody takes {step}."
    );
    let remedy = Remedy::by_hand(format!("Start a replica of {service}."), service);
    Some(Finding::new(FindingKind::ServiceDown, what, gone.since).remedy(remedy))
}

fn breakers<'a>(known: &'a Known, arrow: &'a Arrow<'_>) -> impl Iterator<Item = Finding> + 'a {
    let (step, service) = (arrow.step.name, arrow.service.0);
    let of_step = move |fact: &&Fact| fact.service == service && fact.consumer() == step;
    known.facts_of("BREAKER").filter(of_step).map(move |fact| {
        let state = fact.state.as_deref().unwrap_or("open");
        let replica = fact.reference.as_deref().unwrap_or_default();
        let why = quoted(fact.detail.as_deref());
        let what = format!("The circuit breaker of {step} of {service} is {state} in replica {replica}: {why}.");
        let request = format!("POST /api/admin/breakers/{step}/reset");
        let remedy = Remedy::request("It closes by itself when its probes succeed; or reset it.", service, request);
        Finding::new(FindingKind::BreakerOpen, what, fact.since).remedy(remedy)
    })
}

fn at_gateway(known: &Known, arrow: &Arrow<'_>) -> Option<Finding> {
    let payment = known.at_gateway.as_ref()?;
    let what = match (arrow.step.name, payment.intent.as_str()) {
        (name, "CHARGE") if name == PROCESS_PAYMENT.name => format!(
            "Payment {} is about to be charged, and the card processor's answer is not there: it is slow, or away.",
            payment.payment_id
        ),
        (name, "UNDO") if name == REFUND_PAYMENT.name => format!(
            "Payment {} is to be given back, if it was taken, and the card processor's answer is not there: it is slow, or \
            away.",
            payment.payment_id
        ),
        _ => return None,
    };
    let request = format!("GET /api/payments/{}", payment.payment_id);
    let remedy =
        Remedy::request("It is asked again by itself, under the same key. Look at it.", arrow.service.0, request);
    Some(Finding::new(FindingKind::AtGateway, what, Some(payment.since)).remedy(remedy))
}

fn retry(known: &Known, fact: &Fact, event: &str) -> Finding {
    let (step, service) = (fact.step(), fact.service.as_str());
    let of = known.attempts.iter().find(|(name, _)| *name == step).map(|(_, attempts)| format!(" of {attempts}"));
    let (done, of, error) = (fact.attempts, of.unwrap_or_default(), quoted(fact.detail.as_deref()));
    let what = match done {
        0 => format!(
            "A replica of {service} cannot read {event} for {step}: {error}. It goes back until a replica of another build \
            takes it; after a while it becomes a dead letter."
        ),
        _ => format!(
            "{step} of {service} has failed on {event} {done}{of} times, at last with: {error}. It is tried again by \
            itself; after the last time it becomes a dead letter."
        ),
    };
    Finding::new(FindingKind::RetryWait, what, fact.since)
}

fn dead_letter(fact: &Fact) -> Finding {
    let (event, step, service) = (fact.event_name(), fact.step(), fact.service.as_str());
    let (why, id) = (quoted(fact.detail.as_deref()), fact.reference.as_deref().unwrap_or_default());
    let what = match fact.state.as_deref() {
        Some("DISCARDED") => {
            format!("{event} was a dead letter of {step} of {service}, and an operator gave it up: {why}.")
        }
        Some("RESOLVED") => format!("{event} was a dead letter of {step} of {service} ({why}), and was applied later."),
        Some("REPLAYED") => format!("{event} is a dead letter of {step} of {service} ({why}), being replayed now."),
        _ => format!(
            "{event} is a dead letter of {step} of {service} ({why}), replayed {} times. It stays so until an operator \
            acts.",
            fact.attempts
        ),
    };
    let finding = Finding::new(FindingKind::DeadLetter, what, fact.since);
    match fact.state.as_deref() {
        Some("PENDING") => {
            let request = format!("POST /api/admin/dlq/{id}/replay");
            finding.remedy(Remedy::request("Replay it, once its cause is mended; or discard it.", service, request))
        }
        _ => finding,
    }
}
