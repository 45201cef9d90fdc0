//! Writes that outlive their request: axum drops a handler when its client disconnects or the request times out, and sqlx may
//! leave a transaction open when `begin` is dropped, so each write runs in its own task. [`WriteBatcher`] does group commit:
//! 298 sagas/s instead of 219 (docs/performance.md).

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};
use tracing::Instrument as _;

use crate::http::Problem;

/// The timeout of a write. A longer one waits for a server that is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a write to its end even when the caller is dropped, inside the caller's span, and answers with its result.
/// A write in progress holds its connection, so closing the pools at shutdown waits for it.
///
/// # Errors
/// The write's own failure as a [`Problem`]; 500 when it panicked, 503 when it takes longer than half a minute.
pub async fn detached<T, E, F>(write: F) -> Result<T, Problem>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Into<Problem> + Send + 'static,
{
    detached_within(WRITE_TIMEOUT, write).await
}

/// The same with another timeout.
///
/// # Errors
/// As [`detached`], with `limit` instead of half a minute.
pub async fn detached_within<T, E, F>(limit: Duration, write: F) -> Result<T, Problem>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Into<Problem> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "closing the pools waits for its connection")]
    let task = tokio::spawn(timeout(limit, write).in_current_span());
    match task.await {
        Ok(Ok(result)) => result.map_err(Into::into),
        Ok(Err(_)) => Err(timed_out()),
        Err(failure) => Err(Problem::internal(&failure)),
    }
}

/// Group commit: items that arrive while others are being written are queued and then written as one batch. Without concurrent
/// writes an item is written at once.
#[derive(Debug)]
pub struct WriteBatcher<T, R> {
    waiting: Mutex<VecDeque<Waiting<T, R>>>,
    /// How many batches may be written concurrently.
    lanes: Semaphore,
    max_batch: usize,
}

type Waiting<T, R> = (T, oneshot::Sender<Result<R, Problem>>);

/// The capacity of the queue, in full batches; further items are refused.
const MAX_QUEUED_BATCHES: usize = 4;

impl<T: Send + 'static, R: Send + 'static> WriteBatcher<T, R> {
    /// Batches of up to `max_batch` items, `lanes` of them concurrently.
    pub fn new(lanes: usize, max_batch: usize) -> Arc<Self> {
        Arc::new(WriteBatcher { waiting: Mutex::default(), lanes: Semaphore::new(lanes), max_batch })
    }

    /// Writes `item` with `write`, which gets a batch and returns a result for each item, in order. When the caller is dropped, a
    /// batch in progress is finished, and a queued item is discarded.
    ///
    /// # Errors
    /// 503 when the queue is full, or the write takes longer than half a minute; 500 when the write panicked.
    pub async fn write<F>(
        self: &Arc<Self>,
        item: T,
        write: impl FnOnce(Vec<T>) -> F + Send + 'static,
    ) -> Result<R, Problem>
    where
        F: Future<Output = Vec<R>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.len() >= MAX_QUEUED_BATCHES * self.max_batch {
                return Err(Problem::unavailable("Too many want to write at once.", 1));
            }
            waiting.push_back((item, answer));
        }
        let this = Arc::clone(self);
        // Outside the caller's span, because the batch is mostly items of other callers.
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with the batch; closing the pools waits for its connection"
        )]
        tokio::spawn(async move {
            // The semaphore is never closed.
            let _lane = this.lanes.acquire().await.ok();
            let (items, answers): (Vec<_>, Vec<_>) = this.next_batch().into_iter().unzip();
            if items.is_empty() {
                return;
            }
            let results = match timeout(WRITE_TIMEOUT, write(items)).await {
                Ok(results) => results.into_iter().map(Ok).collect(),
                Err(_) => answers.iter().map(|_| Err(timed_out())).collect::<Vec<_>>(),
            };
            for (answer, result) in answers.into_iter().zip(results) {
                // Fails when the caller was dropped.
                drop(answer.send(result));
            }
        });
        answered.await.unwrap_or_else(|lost| Err(Problem::internal(&lost)))
    }

    /// Takes the next batch. Each queued item has one task that calls this once and takes at least one item if there are any, so
    /// no item is left in the queue.
    fn next_batch(&self) -> Vec<Waiting<T, R>> {
        let mut waiting = self.waiting();
        let mut batch = Vec::with_capacity(waiting.len().min(self.max_batch));
        while batch.len() < self.max_batch
            && let Some(next) = waiting.pop_front()
        {
            if !next.1.is_closed() {
                batch.push(next);
            }
        }
        batch
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting<T, R>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn timed_out() -> Problem {
    let detail = "The database does not answer, and what became of the request is unknown; repeat it, with the same \
                  Idempotency-Key if it had one.";
    Problem::unavailable(detail, 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use axum::http::StatusCode;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_write_continues_when_its_caller_is_dropped() {
        let (start, started) = oneshot::channel::<()>();
        let (finish, finished) = oneshot::channel();
        let caller = tokio::spawn(detached(async move {
            started.await.ok();
            finish.send("written").ok();
            Ok::<_, Problem>(())
        }));
        tokio::task::yield_now().await;
        caller.abort();
        caller.await.unwrap_err();
        start.send(()).unwrap();
        assert_eq!(finished.await.unwrap(), "written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_response_times_out() {
        let answer = detached(std::future::pending::<Result<(), Problem>>()).await;
        assert_eq!(answer.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    /// A batcher whose only lane is occupied until the sender is used or dropped.
    async fn occupied(max_batch: usize) -> (Arc<WriteBatcher<u32, usize>>, oneshot::Sender<()>) {
        let batcher = WriteBatcher::new(1, max_batch);
        let (release, released) = oneshot::channel::<()>();
        tokio::spawn({
            let batcher = Arc::clone(&batcher);
            async move {
                let slow = |batch: Vec<u32>| async move {
                    released.await.ok();
                    vec![0; batch.len()]
                };
                batcher.write(0, slow).await
            }
        });
        while batcher.lanes.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        (batcher, release)
    }

    /// Submits an item; the result shows the item and the size of its batch.
    fn submit(batcher: &Arc<WriteBatcher<u32, usize>>, n: u32) -> tokio::task::JoinHandle<Result<usize, Problem>> {
        let batcher = Arc::clone(batcher);
        tokio::spawn(async move {
            let sized = |batch: Vec<u32>| async move { batch.iter().map(|n| *n as usize * 10 + batch.len()).collect() };
            batcher.write(n, sized).await
        })
    }

    #[tokio::test]
    async fn items_that_arrive_during_a_write_form_batches() {
        let (batcher, release) = occupied(3).await;
        let later: Vec<_> = (1..=5).map(|n| submit(&batcher, n)).collect();
        while batcher.waiting().len() < 5 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        let mut answers = Vec::new();
        for answer in later {
            answers.push(answer.await.unwrap().unwrap());
        }
        assert_eq!(answers, [13, 23, 33, 42, 52], "batches of three and of two, with a result for each item");
    }

    #[tokio::test]
    async fn dropped_callers_are_skipped_and_a_full_queue_refuses() {
        let (batcher, release) = occupied(1).await;
        let waiting: Vec<_> = (1..=MAX_QUEUED_BATCHES as u32).map(|n| submit(&batcher, n)).collect();
        while batcher.waiting().len() < MAX_QUEUED_BATCHES {
            tokio::task::yield_now().await;
        }
        assert_eq!(submit(&batcher, 9).await.unwrap().unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        waiting[0].abort();
        while !batcher.waiting()[0].1.is_closed() {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        for (n, answer) in (1..).zip(waiting) {
            match n {
                1 => assert!(answer.await.unwrap_err().is_cancelled()),
                n => assert_eq!(answer.await.unwrap().unwrap(), n * 10 + 1),
            }
        }
    }

    #[tokio::test]
    async fn a_panic_fails_all_items_of_its_batch_and_no_others() {
        let batcher = WriteBatcher::<u32, u32>::new(1, 8);
        let failed = batcher.write(1, |_| async { panic!("boom") }).await;
        assert_eq!(failed.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(batcher.write(2, |batch| async { batch }).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_panicking_write_is_an_internal_error() {
        let answer = detached(async { panic!("boom") as Result<(), Problem> }).await;
        assert_eq!(answer.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
