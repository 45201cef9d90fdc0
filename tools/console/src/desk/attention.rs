//! What needs attention: sagas without progress, with the cause that order knows; dead letters; parked events.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use maud::{Markup, html};
use tokio::time::{Instant, timeout_at};

use super::{
    Desk,
    store::{self, Stuck, Waiting},
};

/// A saga that has made no progress for so long needs a look. The slowest forward step has a retry's wait of some seconds.
const STUCK_AFTER: f64 = 10.0;
/// How many stuck sagas are shown.
const SHOWN: i64 = 20;

/// How long order is asked for causes, for the whole page.
const ASKING: Duration = Duration::from_secs(2);

/// What was found, or why nothing could be.
pub(crate) struct Attention(Result<Found, String>);

struct Found {
    stuck: Vec<(Stuck, Option<String>)>,
    waiting: Vec<Waiting>,
}

pub(crate) async fn attention(desk: &Desk) -> Attention {
    Attention(find(desk).await.map_err(|error| {
        tracing::warn!(%error, "what needs attention cannot be read");
        "The suite's database cannot be read now.".to_owned()
    }))
}

async fn find(desk: &Desk) -> sqlx::Result<Found> {
    const PARALLEL: usize = 5;
    let stuck = store::stuck(&desk.pool, STUCK_AFTER, SHOWN).await?;
    let waiting = store::waiting(&desk.pool).await?;
    let deadline = Instant::now() + ASKING;
    let explained = stream::iter(stuck).map(async |stuck| {
        let cause = cause(desk, &stuck, deadline).await;
        (stuck, cause)
    });
    Ok(Found { stuck: explained.buffered(PARALLEL).collect().await, waiting })
}

/// The first obstacle that order names; `None` when order does not answer.
async fn cause(desk: &Desk, stuck: &Stuck, deadline: Instant) -> Option<String> {
    let explanation = timeout_at(deadline, desk.suite.explain(stuck.order_id)).await.ok()?.ok()?;
    Some(explanation.findings.into_iter().next().map_or(explanation.summary, |finding| finding.what))
}

impl Attention {
    pub(crate) fn section(&self) -> Markup {
        html! {
            h2 { "What needs attention" }
            @match &self.0 {
                Err(reason) => p.bad { (reason) },
                Ok(Found { stuck, waiting }) if stuck.is_empty() && waiting.is_empty() => p.good { "Nothing." },
                Ok(found) => (list(found)),
            }
        }
    }
}

fn list(Found { stuck, waiting }: &Found) -> Markup {
    html! {
        @if !waiting.is_empty() {
            ul {
                @for Waiting { service, dead_letters, parked } in waiting {
                    @if *dead_letters > 0 {
                        li.bad { a href="/manage/dead-letters" { "Dead letters of " (service) } ": " (dead_letters) " to be decided" }
                    }
                    @if *parked > 0 {
                        li.bad { a href="/manage/outboxes" { "Parked events of " (service) } ": " (parked) }
                    }
                }
            }
        }
        @if !stuck.is_empty() {
            table {
                thead { tr { th { "Order" } th { "Saga" } th.number { "Without progress" } th { "Why" } } }
                tbody {
                    @for (Stuck { order_id, status, seconds }, cause) in stuck {
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
