//! The life of one order, as its client lives it: placed under a key until there is an answer,
//! perhaps cancelled, then watched until its saga has ended.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::plan::Planned;
use crate::suite::{NewOrder, Order, Saga, Suite, SuiteError, until};

/// What became of one order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Life {
    pub(super) end: End,
    /// Set as soon as the order was acknowledged.
    pub(super) order_id: Option<Uuid>,
    /// How many requests it took until the placement was answered.
    pub(super) requests: u32,
    /// From the moment at which the order was due until its placement was answered.
    pub(super) answered_after: Duration,
    /// From that moment until the client saw the end of its saga.
    pub(super) seen_ended_after: Option<Duration>,
    /// From the start of the saga to its end, by the suite's own clock.
    pub(super) saga_took: Option<Duration>,
    /// Whether its customer cancelled it, which makes its duration the customer's.
    pub(super) cancelled_by_customer: bool,
}

/// How an order ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Confirmed,
    /// With the step at which it failed.
    Cancelled(String),
    /// The placement was refused: no order of the load should be.
    Refused(String),
    /// The placement was not answered in time.
    Unanswered(String),
    /// Acknowledged, and then not to be found: the worst.
    Lost,
    /// Still not ended when the time was over; with where its saga stands.
    Unfinished(String),
}

impl End {
    pub(super) fn is_good(&self) -> bool {
        matches!(self, End::Confirmed | End::Cancelled(_))
    }
}

/// What is the same for all orders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    pub(super) settle: Duration,
}

impl Course {
    /// Places the order, which was due at `due`, and follows it to its end.
    pub(super) async fn follow(self, suite: &Suite, planned: Planned, due: Instant) -> Life {
        let key = planned.key.to_string();
        let placed = suite.place_surely(&planned.order, &key, self.settle).await;
        let mut life = Life::begun(due.elapsed(), planned.cancel_after.is_some());
        let order = match placed {
            Ok((order, requests)) => {
                life.requests = requests;
                order
            }
            Err(error) => {
                life.end = if error.is_temporary() {
                    End::Unanswered(error.to_string())
                } else {
                    End::Refused(error.to_string())
                };
                return life;
            }
        };
        life.order_id = Some(order.order_id);
        if let Some(after) = planned.cancel_after {
            sleep(after).await;
            self.cancel(suite, &planned.order, order.order_id).await;
        }
        self.watch(suite, order.order_id, due, &mut life).await;
        life
    }

    /// Repeats the cancellation until it is answered; whatever the answer, the order's end counts.
    async fn cancel(self, suite: &Suite, order: &NewOrder, order_id: Uuid) {
        let reason = format!("{} changed their mind", order.customer_id);
        let cancelled = until(self.settle, async || suite.cancel(order_id, &reason).await.map(Some)).await;
        if let Err(error) = cancelled {
            eprintln!("order {order_id} could not be cancelled: {error}");
        }
    }

    async fn watch(self, suite: &Suite, order_id: Uuid, due: Instant, life: &mut Life) {
        let customer = life.cancelled_by_customer;
        // Often enough to see the end soon, seldom enough not to be the load: the suite's own clock is the exact one.
        let mut pause = Duration::from_millis(100);
        life.end = loop {
            sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(500));
            let (end, saga) = match look(suite, order_id, customer).await {
                Ok(seen) => seen,
                Err(error) => (End::Unfinished(error.to_string()), None),
            };
            if end.is_good() {
                life.seen_ended_after = Some(due.elapsed());
                life.saga_took = saga.and_then(|s| Duration::try_from(s.completed_at? - s.started_at).ok());
                break end;
            }
            // Also an order that is not to be found: it may be found later, which is bad enough.
            if due.elapsed() >= self.settle {
                break end;
            }
        };
    }
}

impl Life {
    fn begun(answered_after: Duration, cancelled_by_customer: bool) -> Self {
        Life {
            end: End::Lost,
            order_id: None,
            requests: 1,
            answered_after,
            seen_ended_after: None,
            saga_took: None,
            cancelled_by_customer,
        }
    }
}

/// What the order's end would be if nothing more happened to it.
async fn look(suite: &Suite, order_id: Uuid, by_customer: bool) -> Result<(End, Option<Saga>), SuiteError> {
    let Some(order) = suite.order(order_id).await? else { return Ok((End::Lost, None)) };
    if !order.is_terminal() {
        return Ok((End::Unfinished(order.status), None));
    }
    let Some(saga) = suite.saga_of(order_id).await? else {
        return Ok((End::Unfinished(format!("{} without a saga", order.status)), None));
    };
    let end = match (order.status.as_str(), saga.status.as_str()) {
        // A customer's cancellation was answered, so it must still come.
        ("CONFIRMED", "COMPLETED") if !by_customer => End::Confirmed,
        ("CANCELLED", "COMPENSATED") => {
            End::Cancelled(saga.failed_at_step.clone().unwrap_or_else(|| "unknown step".to_owned()))
        }
        (order, saga) => End::Unfinished(format!("{order}, saga {saga}")),
    };
    Ok((end, Some(saga)))
}

/// Looks at all ended orders once more: an end that does not last is none.
pub(super) async fn look_again(suite: &Suite, lives: &mut [Life]) {
    const PARALLEL: usize = 16;
    stream::iter(lives.iter_mut().filter(|life| life.end.is_good()))
        .for_each_concurrent(PARALLEL, async |life| {
            let Some(order_id) = life.order_id else { return };
            let found = until(Duration::from_secs(10), async || suite.order(order_id).await.map(Some)).await;
            life.end = match (found.ok().flatten(), &life.end) {
                (Some(None), _) => End::Lost,
                (Some(Some(order)), end) if !agrees(&order, end) => {
                    End::Unfinished(format!("{} after it had ended otherwise", order.status))
                }
                (_, end) => end.clone(),
            };
        })
        .await;
}

fn agrees(order: &Order, end: &End) -> bool {
    match end {
        End::Confirmed => order.status == "CONFIRMED",
        End::Cancelled(_) => order.status == "CANCELLED",
        _ => true,
    }
}
