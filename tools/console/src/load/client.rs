//! The client of one order: it places the order under a key until there is an answer, may cancel it, and may poll its saga until
//! it has ended. How it ended is read from the database.

use std::{sync::Arc, time::Duration};

use time::OffsetDateTime;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use uuid::Uuid;

use super::{plan::Planned, window::Window};
use crate::suite::{NewOrder, Order, Suite, SuiteError, until};

/// The result of one order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OrderResult {
    pub(super) end: End,
    /// Set as soon as the order was acknowledged.
    pub(super) order_id: Option<Uuid>,
    /// How many requests it took until the placement was answered.
    pub(super) requests: u32,
    /// From the moment at which the order was due until its placement was answered.
    pub(super) answered_after: Duration,
    /// From that moment until the client saw the end of its saga, if it polled.
    pub(super) seen_ended_after: Option<Duration>,
    /// When the saga started and ended, by the suite's own clock.
    pub(super) started_at: Option<OffsetDateTime>,
    pub(super) ended_at: Option<OffsetDateTime>,
    /// Whether it was due when measuring had begun.
    pub(super) measured: bool,
    /// Whether its customer cancelled it; the customer then determines its duration.
    pub(super) cancelled_by_customer: bool,
    pub(super) has_to_be_confirmed: bool,
    /// How long a read took, or why it failed, if it was planned.
    pub(super) read: Option<Result<Duration, String>>,
}

/// How an order ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Confirmed,
    /// With the step at which it failed.
    Cancelled(String),
    /// The placement was refused, which is a defect.
    Refused(String),
    /// The placement was not answered in time.
    Unanswered(String),
    /// Acknowledged, and then not found.
    #[default]
    Lost,
    /// Not ended within the time limit; with the states of order and saga.
    Unfinished(String),
}

impl End {
    /// The end of an order in these states.
    pub(super) fn of(order: &str, saga: &str, failed_at: Option<&str>, by_customer: bool) -> Self {
        match (order, saga) {
            // The cancellation was accepted, so it must still take effect.
            ("CONFIRMED", "COMPLETED") if !by_customer => End::Confirmed,
            ("CANCELLED", "COMPENSATED") => End::Cancelled(failed_at.unwrap_or("unknown step").to_owned()),
            (order, saga) => End::Unfinished(format!("{order}, saga {saga}")),
        }
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self, End::Confirmed | End::Cancelled(_))
    }
}

/// What all orders share.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) suite: Suite,
    pub(super) settle: Duration,
    pub(super) orchestrated: bool,
    /// One permit per concurrent placement.
    pub(super) connections: Semaphore,
    /// `Some` in a closed loop.
    pub(super) window: Option<Arc<Window>>,
    /// Orders that are due from this moment on are measured.
    pub(super) measured_from: Instant,
}

impl Client {
    /// Places the order, which was due at `due`, and polls it to its end if planned.
    pub(super) async fn follow(&self, planned: Planned, due: Instant) -> OrderResult {
        let key = planned.key.to_string();
        let permit = self.connections.acquire().await;
        // In a closed loop nothing is due before there is a connection.
        let due = if self.window.is_some() { Instant::now() } else { due };
        let placed = match self.orchestrated {
            true => self.suite.place_orchestrated_surely(&planned.order, &key, self.settle).await,
            false => self.suite.place_surely(&planned.order, &key, self.settle).await,
        };
        drop(permit);
        let mut result = OrderResult {
            requests: 1,
            answered_after: due.elapsed(),
            measured: due >= self.measured_from,
            cancelled_by_customer: planned.cancel_after.is_some(),
            has_to_be_confirmed: planned.has_to_be_confirmed,
            ..OrderResult::default()
        };
        match (&self.window, &placed) {
            (Some(window), Ok((order, _))) => window.accepted(order.order_id),
            (Some(window), Err(_)) => window.refused(),
            (None, _) => {}
        }
        let order = match placed {
            Ok((order, requests)) => {
                result.requests = requests;
                order
            }
            Err(error) => {
                let end = if error.is_temporary() { End::Unanswered } else { End::Refused };
                result.end = end(error.to_string());
                return result;
            }
        };
        result.order_id = Some(order.order_id);
        if let Some(after) = planned.cancel_after {
            sleep(after).await;
            self.cancel(&planned.order, order.order_id).await;
        }
        if planned.followed {
            result.seen_ended_after = self.watch(order.order_id, due, result.cancelled_by_customer).await;
        }
        if let Some(read) = planned.read {
            result.read = Some(read.make(&self.suite, &order, &planned.order.customer_id, self.settle).await);
        }
        result
    }

    /// Repeats the cancellation until it is answered; only the order's end counts.
    async fn cancel(&self, order: &NewOrder, order_id: Uuid) {
        let reason = format!("{} changed their mind", order.customer_id);
        let cancelled = until(self.settle, async || self.suite.cancel(order_id, &reason).await.map(Some)).await;
        if let Err(error) = cancelled {
            eprintln!("order {order_id} could not be cancelled: {error}");
        }
    }

    /// The time from the due moment until the client saw the end; `None` after the limit.
    async fn watch(&self, order_id: Uuid, due: Instant, by_customer: bool) -> Option<Duration> {
        // The end is seen at most a seventh of the time late; the exact times are the suite's.
        let mut pause = Duration::from_millis(5);
        while due.elapsed() < self.settle {
            sleep(pause).await;
            pause = (pause * 8 / 7).min(Duration::from_millis(500));
            if self.has_ended(order_id, by_customer).await.unwrap_or(false) {
                return Some(due.elapsed());
            }
        }
        None
    }

    async fn has_ended(&self, order_id: Uuid, by_customer: bool) -> Result<bool, SuiteError> {
        let Some(order) = self.suite.order(order_id).await?.filter(Order::is_terminal) else { return Ok(false) };
        let saga = self.suite.saga_of(order_id).await?;
        Ok(saga.is_some_and(|saga| End::of(&order.status, &saga.status, None, by_customer).is_good()))
    }
}

impl OrderResult {
    /// It ended, and was not cancelled if it had to be confirmed.
    pub(super) fn is_good(&self) -> bool {
        self.end.is_good() && (!self.has_to_be_confirmed || self.end == End::Confirmed)
    }

    /// From the start of the saga to its end, by the suite's own clock.
    pub(super) fn saga_took(&self) -> Option<Duration> {
        Duration::try_from(self.ended_at? - self.started_at?).ok()
    }
}
