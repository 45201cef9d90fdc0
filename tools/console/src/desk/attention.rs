//! What needs attention: sagas without progress, with the cause that order knows; dead letters; parked events; and what the
//! services' administration says is not in order. The overview shows it, and a tool answers it.

use std::time::Duration;

use futures_util::{StreamExt, future::join_all, stream};
use maud::{Markup, html};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Desk,
    store::{self, Stuck, Waiting},
};
use crate::suite::{SERVICES, Service, Suite, SuiteError};

/// A saga that has made no progress for so long needs a look. The slowest forward step has a retry's wait of some seconds.
const STUCK_AFTER: f64 = 10.0;
/// How many stuck sagas are shown.
const SHOWN: i64 = 20;

/// How long order is asked for causes, all together, and each service for what is not in order.
const ASKING: Duration = Duration::from_secs(2);

/// What needs attention now.
#[derive(Debug, Serialize)]
pub(crate) struct Attention {
    /// Why neither `stuck` nor `waiting` could be read.
    failure: Option<String>,
    /// Sagas without progress, longest first.
    stuck: Vec<Stuck>,
    waiting: Vec<Waiting>,
    abnormal: Vec<Abnormal>,
}

/// What the administration of a service says is not in order.
#[derive(Debug, Serialize)]
struct Abnormal {
    service: &'static str,
    /// `consumer`, `relay` or `breaker`; `service` where it does not answer.
    kind: &'static str,
    step: Option<String>,
    replica: Option<String>,
    state: String,
    why: Option<String>,
}

pub(crate) async fn attention(desk: &Desk) -> Attention {
    let (found, abnormal) = tokio::join!(find(desk), abnormal(&desk.suite));
    let (failure, (stuck, waiting)) = match found {
        Ok(found) => (None, found),
        Err(error) => {
            tracing::warn!(%error, "what needs attention cannot be read");
            (Some("The suite's database cannot be read now.".to_owned()), Default::default())
        }
    };
    Attention { failure, stuck, waiting, abnormal }
}

async fn find(desk: &Desk) -> sqlx::Result<(Vec<Stuck>, Vec<Waiting>)> {
    const PARALLEL: usize = 5;
    let stuck = store::stuck(&desk.pool, STUCK_AFTER, SHOWN).await?;
    let waiting = store::waiting(&desk.pool).await?;
    let deadline = Instant::now() + ASKING;
    let explained = stream::iter(stuck).map(async |stuck| {
        let cause = cause(desk, &stuck, deadline).await;
        Stuck { cause, ..stuck }
    });
    Ok((explained.buffered(PARALLEL).collect().await, waiting))
}

async fn abnormal(suite: &Suite) -> Vec<Abnormal> {
    let asked = SERVICES.map(|service| async move {
        let why = match timeout(ASKING, abnormal_in(suite, service)).await {
            Ok(Ok(found)) => return found,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", ASKING.as_secs()),
        };
        vec![Abnormal { why: Some(why), ..Abnormal::new(service, "service", "does not answer") }]
    });
    join_all(asked).await.into_iter().flatten().collect()
}

async fn abnormal_in(suite: &Suite, service: Service) -> Result<Vec<Abnormal>, SuiteError> {
    let (consumers, relay, breakers) =
        tokio::try_join!(suite.consumers(service), suite.relay(service), suite.breakers(service))?;
    let new = |kind, state: &str| Abnormal::new(service, kind, state);
    let consumers = consumers.into_iter().filter(|consumer| consumer.paused.is_some());
    let mut found: Vec<_> = consumers
        .map(|consumer| Abnormal {
            step: Some(consumer.step),
            why: consumer.paused,
            ..new("consumer", "does not consume")
        })
        .collect();
    if relay.paused {
        found.push(new("relay", "paused"));
    }
    if relay.last_failure.is_some() {
        let replica = Some(relay.holder);
        found.push(Abnormal { replica, why: relay.last_failure, ..new("relay", "cannot publish") });
    } else if let Some(seconds) = relay.oldest_pending_seconds.filter(|seconds| !relay.paused && *seconds > STUCK_AFTER)
    {
        let why = Some(format!("an event has waited for {seconds:.0} s"));
        found.push(Abnormal { replica: Some(relay.holder), why, ..new("relay", "does not publish") });
    }
    let open = breakers.items.into_iter().filter(|breaker| !breaker.is_closed());
    found.extend(open.map(|breaker| Abnormal {
        step: Some(breaker.step),
        replica: Some(breaker.replica),
        why: breaker.why,
        ..new("breaker", &breaker.state)
    }));
    Ok(found)
}

impl Abnormal {
    fn new(service: Service, kind: &'static str, state: &str) -> Self {
        Abnormal { service: service.0, kind, step: None, replica: None, state: state.to_owned(), why: None }
    }
}

/// The first obstacle that order names; `None` when order does not answer.
async fn cause(desk: &Desk, stuck: &Stuck, deadline: Instant) -> Option<String> {
    let explanation = timeout_at(deadline, desk.suite.explain(stuck.order_id)).await.ok()?.ok()?;
    Some(explanation.findings.into_iter().next().map_or(explanation.summary, |finding| finding.what))
}

impl Attention {
    pub(crate) fn section(&self) -> Markup {
        let Attention { failure, stuck, waiting, abnormal } = self;
        html! {
            h2 { "What needs attention" }
            @match failure {
                Some(reason) => p.bad { (reason) },
                None if stuck.is_empty() && waiting.is_empty() && abnormal.is_empty() => p.good { "Nothing." },
                None => {},
            }
            (list(self))
        }
    }
}

fn list(Attention { stuck, waiting, abnormal, .. }: &Attention) -> Markup {
    html! {
        @if !waiting.is_empty() || !abnormal.is_empty() {
            ul {
                @for Waiting { service, dead_letters, parked } in waiting {
                    @if *dead_letters > 0 {
                        li.bad { a href="/manage/dead-letters" { "Dead letters of " (service) } ": " (dead_letters) " to be decided" }
                    }
                    @if *parked > 0 {
                        li.bad { a href="/manage/outboxes" { "Parked events of " (service) } ": " (parked) }
                    }
                }
                @for one in abnormal { (not_in_order(one)) }
            }
        }
        @if !stuck.is_empty() {
            table {
                thead { tr { th { "Order" } th { "Saga" } th.number { "Without progress" } th { "Why" } } }
                tbody {
                    @for Stuck { order_id, status, seconds, cause } in stuck {
                        tr {
                            td data-name="Order" { a href={ "/orders/" (order_id) } { code { (order_id) } } }
                            td data-name="Saga" class=(super::orders::class_of(status)) { (status) }
                            td.number data-name="Without progress" { (format!("{seconds:.0} s")) }
                            td data-name="Why" { (cause.as_deref().unwrap_or("order does not answer")) }
                        }
                    }
                }
            }
            @if i64::try_from(stuck.len()).is_ok_and(|shown| shown >= SHOWN) {
                p.quiet { "The " (SHOWN) " that have waited longest. " a href="/orders?saga_status=IN_PROGRESS" { "All in progress" } }
            }
        }
    }
}

fn not_in_order(Abnormal { service, kind, step, replica, state, why }: &Abnormal) -> Markup {
    html! {
        li.bad {
            @match *kind {
                "service" => (service),
                _ => a href={ "/manage/" (kind) "s" } { (service) ": " (kind) @if let Some(step) = step { " of " (step) } },
            }
            " " (state)
            @if let Some(replica) = replica { " in " (replica) }
            @if let Some(why) = why { ": " (why) }
        }
    }
}
