//! Polling until a condition holds.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{NewOrder, Order, Saga, Suite, SuiteError};

/// Polls until there is a value; `None` after the limit. The pauses grow from 50 to 500 ms, so that many waiting callers are no
/// load. Temporary errors are retried.
///
/// # Errors
/// A permanent error, or a temporary one after the limit.
pub async fn until<T, Answer>(limit: Duration, mut ask: impl FnMut() -> Answer) -> Result<Option<T>, SuiteError>
where
    Answer: Future<Output = Result<Option<T>, SuiteError>>,
{
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(50);
    loop {
        match ask().await {
            Ok(Some(answer)) => return Ok(Some(answer)),
            Err(error) if !error.is_temporary() || Instant::now() >= end => return Err(error),
            Ok(None) if Instant::now() >= end => return Ok(None),
            Ok(None) | Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 3 / 2).min(Duration::from_millis(500));
    }
}

/// Repeats a placement until it is answered; returns the number of requests, too.
async fn surely<F>(limit: Duration, mut place: impl FnMut() -> F) -> Result<(Order, u32), SuiteError>
where
    F: Future<Output = Result<Order, SuiteError>>,
{
    let mut requests = 0;
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(50);
    loop {
        requests += 1;
        match place().await {
            Ok(order) => return Ok((order, requests)),
            Err(error) if !error.is_temporary() || Instant::now() + pause >= end => return Err(error),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

impl Suite {
    /// Places an order, repeating the request under the same key until it is answered. Returns the number of requests, too.
    ///
    /// # Errors
    /// A refusal, or no answer within the limit.
    pub async fn place_surely(&self, order: &NewOrder, key: &str, limit: Duration) -> Result<(Order, u32), SuiteError> {
        surely(limit, || self.place(order, key, None)).await
    }

    /// The same for an order whose saga a coordinator drives.
    ///
    /// # Errors
    /// As [`Suite::place_surely`].
    pub async fn place_orchestrated_surely(
        &self,
        order: &NewOrder,
        key: &str,
        limit: Duration,
    ) -> Result<(Order, u32), SuiteError> {
        surely(limit, || self.place_orchestrated(order, key)).await
    }

    /// The order as soon as it is CONFIRMED or CANCELLED.
    pub async fn ended_order(&self, order_id: Uuid, limit: Duration) -> Result<Option<Order>, SuiteError> {
        until(limit, async || Ok(self.order(order_id).await?.filter(Order::is_terminal))).await
    }

    /// The order's saga with its journal, as soon as it is in such a state.
    pub async fn saga_when(
        &self,
        order_id: Uuid,
        is: impl Fn(&Saga) -> bool,
        limit: Duration,
    ) -> Result<Option<Saga>, SuiteError> {
        match until(limit, async || Ok(self.saga_of(order_id).await?.filter(&is))).await? {
            Some(saga) => until(limit, async || self.saga(saga.saga_id).await).await,
            None => Ok(None),
        }
    }
}
