//! The life of one order, as its client lives it: placed under a key until there is an answer,
//! perhaps cancelled, then watched until its saga has ended.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use time::OffsetDateTime;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use uuid::Uuid;

use super::{plan::Planned, window::Window};
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
    /// From that moment until the client saw the end of its saga, if it looked.
    pub(super) seen_ended_after: Option<Duration>,
    /// When the saga started and ended, by the suite's own clock.
    pub(super) started_at: Option<OffsetDateTime>,
    pub(super) ended_at: Option<OffsetDateTime>,
    /// Whether it was due when measuring had begun.
    pub(super) measured: bool,
    /// Whether its customer cancelled it, which makes its duration the customer's.
    pub(super) cancelled_by_customer: bool,
    pub(super) has_to_be_confirmed: bool,
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
    /// Accepted, and not looked at since.
    Unwatched,
    /// Still not ended when the time was over; with where its saga stands.
    Unfinished(String),
}

impl End {
    /// The end of an order that is found like this.
    pub(super) fn of(order: &str, saga: &str, failed_at: Option<&str>, by_customer: bool) -> Self {
        match (order, saga) {
            // A customer's cancellation was answered, so it must still come.
            ("CONFIRMED", "COMPLETED") if !by_customer => End::Confirmed,
            ("CANCELLED", "COMPENSATED") => End::Cancelled(failed_at.unwrap_or("unknown step").to_owned()),
            (order, saga) => End::Unfinished(format!("{order}, saga {saga}")),
        }
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self, End::Confirmed | End::Cancelled(_))
    }
}

/// What is the same for all orders.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) suite: Suite,
    pub(super) settle: Duration,
    /// A permit for each request that may wait for its answer.
    pub(super) connections: Semaphore,
    /// In a closed loop.
    pub(super) window: Option<Arc<Window>>,
    /// Orders that are due from then on are measured.
    pub(super) measured_from: Instant,
}

impl Course {
    /// Places the order, which was due at `due`, and follows it to its end if that was planned.
    pub(super) async fn follow(&self, planned: Planned, due: Instant) -> Life {
        let key = planned.key.to_string();
        let turn = self.connections.acquire().await;
        // In a closed loop nothing is due before there is a connection.
        let due = if self.window.is_some() { Instant::now() } else { due };
        let placed = self.suite.place_surely(&planned.order, &key, self.settle).await;
        drop(turn);
        let mut life = Life::begun(due.elapsed(), &planned, due >= self.measured_from);
        match (&self.window, &placed) {
            (Some(window), Ok((order, _))) => window.accepted(order.order_id),
            (Some(window), Err(_)) => window.refused(),
            (None, _) => {}
        }
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
            self.cancel(&planned.order, order.order_id).await;
        }
        if planned.followed {
            self.watch(order.order_id, due, &mut life).await;
        } else {
            life.end = End::Unwatched;
        }
        life
    }

    /// Repeats the cancellation until it is answered; whatever the answer, the order's end counts.
    async fn cancel(&self, order: &NewOrder, order_id: Uuid) {
        let reason = format!("{} changed their mind", order.customer_id);
        let cancelled = until(self.settle, async || self.suite.cancel(order_id, &reason).await.map(Some)).await;
        if let Err(error) = cancelled {
            eprintln!("order {order_id} could not be cancelled: {error}");
        }
    }

    async fn watch(&self, order_id: Uuid, due: Instant, life: &mut Life) {
        let customer = life.cancelled_by_customer;
        // An end is seen late by a seventh of the time at most; the suite's own clock is the exact one.
        let mut pause = Duration::from_millis(5);
        life.end = loop {
            sleep(pause).await;
            pause = (pause * 8 / 7).min(Duration::from_millis(500));
            let (end, saga) = match look(&self.suite, order_id, customer).await {
                Ok(seen) => seen,
                Err(error) => (End::Unfinished(error.to_string()), None),
            };
            if end.is_good() {
                life.seen_ended_after = Some(due.elapsed());
                life.started_at = saga.as_ref().map(|saga| saga.started_at);
                life.ended_at = saga.and_then(|saga| saga.completed_at);
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
    fn begun(answered_after: Duration, planned: &Planned, measured: bool) -> Self {
        Life {
            end: End::Lost,
            order_id: None,
            requests: 1,
            answered_after,
            seen_ended_after: None,
            started_at: None,
            ended_at: None,
            measured,
            cancelled_by_customer: planned.cancel_after.is_some(),
            has_to_be_confirmed: planned.has_to_be_confirmed,
        }
    }

    /// Not cancelled though it could be filled and paid, and at its end.
    pub(super) fn is_good(&self) -> bool {
        self.end.is_good() && (!self.has_to_be_confirmed || self.end == End::Confirmed)
    }

    /// From the start of the saga to its end, by the suite's own clock.
    pub(super) fn saga_took(&self) -> Option<Duration> {
        Duration::try_from(self.ended_at? - self.started_at?).ok()
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
    let end = End::of(&order.status, &saga.status, saga.failed_at_step.as_deref(), by_customer);
    Ok((end, Some(saga)))
}

/// Looks at all ended orders once more over REST: an end that does not last is none.
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
