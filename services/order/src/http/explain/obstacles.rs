//! The obstacles to an awaited step, along the way of its event: outbox, relay, stream, consumer, step.

use contracts::{
    ORDER,
    order_fulfillment::{PROCESS_PAYMENT, REFUND_PAYMENT},
};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{Awaited, Known};
use crate::store::Fact;

/// The kind of an obstacle, in the order of an event's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ObstacleKind {
    /// The broker cannot be reached.
    BrokerAway,
    /// An operator has paused the relay of the event's service.
    RelayPaused,
    /// No replica of the event's service leads its relay.
    NoRelay,
    /// The event is pending in the outbox.
    PublicationPending,
    /// The broker refused the event; publication is retried.
    PublicationRefused,
    /// The event waits for an earlier one of its aggregate, which the broker refuses.
    PublicationHeld,
    /// The retries of the event's publication are exhausted.
    PublicationParked,
    /// The event is neither pending nor among the published ones.
    EventMissing,
    /// The event is a dead letter of the step.
    DeadLetter,
    /// An operator has paused the step's consumer.
    ConsumerPaused,
    /// No replica of the step's service holds a lease.
    ServiceDown,
    /// The step's circuit breaker is open or half-open.
    BreakerOpen,
    /// The step failed on the event, and is retried after a wait.
    RetryWait,
    /// The card processor was called and has not answered.
    AtGateway,
    /// The step has handled the event, and the saga is making progress.
    Handled,
    /// The event is published, and the step has not finished; no obstacle is known.
    UnderWay,
}

/// One obstacle.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Obstacle {
    kind: ObstacleKind,
    /// In one sentence.
    pub(super) what: String,
    /// Since when, where that is known.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    since: Option<OffsetDateTime>,
    /// What an operator can do about it; null when it resolves itself.
    #[schema(required = true)]
    remedy: Option<Remedy>,
}

/// An action of an operator.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Remedy {
    /// In one sentence.
    what: String,
    /// The service to send the request to.
    service: String,
    /// Method and path of the request that does it; null when no request can.
    #[schema(required = true)]
    request: Option<String>,
}

impl Obstacle {
    fn new(kind: ObstacleKind, since: Option<OffsetDateTime>, what: String) -> Self {
        Obstacle { kind, what, since, remedy: None }
    }

    fn remedy(self, service: &str, what: &str, request: impl Into<Option<String>>) -> Self {
        let remedy = Remedy { what: what.to_owned(), service: service.to_owned(), request: request.into() };
        Obstacle { remedy: Some(remedy), ..self }
    }
}

/// The obstacles to the awaited steps, in the order of their kinds.
pub(super) fn obstacles_of(known: &Known, awaited: &[Awaited]) -> Vec<Obstacle> {
    let mut obstacles: Vec<Obstacle> = awaited.iter().flat_map(|step| of_step(known, step)).collect();
    if !known.broker_is_connected {
        let what = "The broker cannot be reached: no event is published or delivered until it is back.".to_owned();
        let obstacle = Obstacle::new(ObstacleKind::BrokerAway, None, what);
        obstacles.push(obstacle.remedy("nats", "Start the broker; processing continues automatically.", None));
    }
    obstacles.sort_by(|a, b| (a.kind, &a.what).cmp(&(b.kind, &b.what)));
    // Two steps may wait for the same event.
    obstacles.dedup_by(|a, b| a.what == b.what);
    obstacles
}

fn of_step(known: &Known, awaited: &Awaited) -> Vec<Obstacle> {
    let Awaited { step, service, on, .. } = awaited;
    let of_event = |kinds: &[&str]| {
        let mut facts = known.facts.iter().filter(|fact| fact.event_id == Some(awaited.event_id));
        facts.find(|fact| fact.service == awaited.publisher && kinds.contains(&fact.kind.as_str()))
    };
    let waits = of_event(&["PENDING", "REFUSED", "HELD", "PARKED"]).is_some();
    let published = of_event(&["PUBLISHED"]);
    let mut obstacles: Vec<Obstacle> =
        known.facts.iter().filter_map(|fact| obstacle(known, awaited, waits, fact)).collect();
    obstacles.extend(at_gateway(known, awaited));
    if obstacles.iter().any(|obstacle| obstacle.kind == ObstacleKind::Handled) {
        obstacles.retain(|obstacle| obstacle.kind == ObstacleKind::Handled);
    } else if let (true, Some(published)) = (obstacles.is_empty(), published) {
        let stream = published.detail.as_deref().unwrap_or_default();
        let what = format!("{on} is in the stream {stream}; {step} of {service} has not finished with it yet.");
        obstacles.push(Obstacle::new(ObstacleKind::UnderWay, published.since, what));
    }
    if !waits && published.is_none() {
        let what = format!(
            "{on} is neither in the outbox of {publisher} nor among the events that {publisher} has published: it is lost, \
            or was discarded by an operator, or is so old that it is not kept any more.",
            publisher = awaited.publisher
        );
        obstacles.push(Obstacle::new(ObstacleKind::EventMissing, None, what));
    }
    obstacles
}

/// The obstacle that a fact means for an awaited step, whose event may be pending (`waits`); none for an unrelated fact.
fn obstacle(known: &Known, awaited: &Awaited, waits: bool, fact: &Fact) -> Option<Obstacle> {
    let Awaited { step, service, on, publisher, .. } = awaited;
    let (consumer, attempts) = (fact.consumer.as_deref().unwrap_or_default(), fact.attempts);
    let (of_event, of_consumer) = (fact.event_id == Some(awaited.event_id), consumer == awaited.consumer);
    let (of_publisher, of_service) = (fact.service == *publisher && waits, fact.service == *service);
    let why = fact.detail.as_deref().map_or("no reason given", |why| why.trim_end().trim_end_matches('.'));
    let id = fact.reference.as_deref().unwrap_or_default();
    let new = |kind, what| Obstacle::new(kind, fact.since, what);
    Some(match fact.kind.as_str() {
        "RELAY_PAUSED" if of_publisher => {
            let what = format!("An operator has paused the relay of {publisher}.");
            let request = "POST /api/admin/relay/resume".to_owned();
            new(ObstacleKind::RelayPaused, what).remedy(publisher, "Resume the relay.", request)
        }
        "RELAY_GONE" if of_publisher && known.broker_is_connected => {
            let what = format!("No replica of {publisher} leads its relay: none is alive, or none reaches the broker.");
            new(ObstacleKind::NoRelay, what).remedy(publisher, &format!("Start a replica of {publisher}."), None)
        }
        "PENDING" if of_event => new(
            ObstacleKind::PublicationPending,
            format!("{on} is committed and waits for publication by the relay of {publisher}."),
        ),
        "REFUSED" if of_event => new(
            ObstacleKind::PublicationRefused,
            format!("The broker has refused {on} {attempts} times, at last with: {why}. It is requeued, and retried."),
        ),
        "HELD" if of_event => new(
            ObstacleKind::PublicationHeld,
            format!("{on} waits for {why}, an earlier event of the same aggregate that the broker refuses."),
        ),
        "PARKED" if of_event => {
            let what = format!("{on} is parked since the broker refused it: {why}.");
            let request = format!("POST /api/admin/outbox/{}/requeue", awaited.event_id);
            let remedy = "Requeue the event, with a reason, once the cause is fixed.";
            new(ObstacleKind::PublicationParked, what).remedy(publisher, remedy, request)
        }
        "DEAD_LETTER" if of_event && of_consumer => {
            let state = fact.state.as_deref().unwrap_or_default();
            let what =
                format!("{on} is a dead letter of {step} of {service}, {state} after {attempts} replays: {why}.");
            let request = format!("POST /api/admin/dlq/{id}/replay");
            new(ObstacleKind::DeadLetter, what).remedy(service, "Replay it, once the cause is fixed.", request)
        }
        "CONSUMER_PAUSED" if of_consumer => {
            let what = format!("An operator has paused {step} of {service}: it takes no event.");
            let request = format!("POST /api/admin/consumers/{step}/resume");
            new(ObstacleKind::ConsumerPaused, what).remedy(service, "Resume it.", request)
        }
        // A live service holds its relay's lease, except while the broker cannot be reached. Order is live, since it answers.
        "RELAY_GONE" if of_service && *service != ORDER.0 && known.broker_is_connected => {
            let what = format!("No replica of {service} keeps its lease, so none takes {step}.");
            new(ObstacleKind::ServiceDown, what).remedy(service, &format!("Start a replica of {service}."), None)
        }
        "BREAKER" if of_service && consumer == *step => {
            let state = fact.state.as_deref().unwrap_or("open");
            let what = format!("The circuit breaker of {step} of {service} is {state} in replica {id}: {why}.");
            let remedy = "It closes automatically when its probes succeed; or reset it.";
            let request = format!("POST /api/admin/breakers/{step}/reset");
            new(ObstacleKind::BreakerOpen, what).remedy(service, remedy, request)
        }
        "FAILED" if of_event && of_consumer && attempts == 0 => new(
            ObstacleKind::RetryWait,
            format!(
                "A replica of {service} cannot read {on} for {step}: {why}. It is redelivered until another build takes it."
            ),
        ),
        "FAILED" if of_event && of_consumer => new(
            ObstacleKind::RetryWait,
            format!("{step} of {service} has failed on {on} {attempts} times, at last with: {why}. It is retried."),
        ),
        "HANDLED" if of_event && of_consumer => {
            new(ObstacleKind::Handled, format!("{step} of {service} has handled {on}; the saga is making progress."))
        }
        _ => return None,
    })
}

fn at_gateway(known: &Known, awaited: &Awaited) -> Option<Obstacle> {
    let payment = known.at_gateway.as_ref()?;
    let id = payment.payment_id;
    let what = match (awaited.step, payment.intent.as_str()) {
        (step, "CHARGE") if step == PROCESS_PAYMENT.name => {
            format!("The card processor was called to charge payment {id}")
        }
        (step, "UNDO") if step == REFUND_PAYMENT.name => {
            format!("The card processor was called to refund payment {id}, if it was charged")
        }
        _ => return None,
    };
    let obstacle =
        Obstacle::new(ObstacleKind::AtGateway, Some(payment.since), format!("{what}, and has not answered."));
    let remedy = "The call is retried automatically, with the same idempotency key. Check the processor.";
    Some(obstacle.remedy(awaited.service, remedy, format!("GET /api/payments/{id}")))
}
