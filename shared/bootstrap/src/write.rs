//! Writes that outlive their request. axum drops a handler when its client disconnects or the request times out,
//! and sqlx may leave a transaction open when `begin` is dropped, so a write runs in a task of its own.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit, oneshot},
    time::timeout,
};
use tracing::Instrument as _;

use crate::http::Problem;

/// How long a write may take: the replay of a dead letter runs a whole step, which has a minute, and writes its outcome down.
/// What takes longer waits for a server that is not there any more.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a write to its end even when the caller is dropped, inside the caller's span, and answers with its result.
/// A write in progress holds its connection, so closing the pools at shutdown waits for it.
///
/// # Errors
/// The write's own failure as a [`Problem`]; 500 when it panicked, 503 when the database does not answer for two minutes.
pub async fn detached<T, E, F>(write: F) -> Result<T, Problem>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Into<Problem> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "closing the pools waits for its connection")]
    let task = tokio::spawn(timeout(LIMIT, write).in_current_span());
    match task.await {
        Ok(Ok(result)) => result.map_err(Into::into),
        Ok(Err(_)) => Err(Problem::unavailable("The database does not answer.", 1)),
        Err(failure) => Err(Problem::internal(&failure)),
    }
}

/// Writes that come together are written together: what arrives while others are being written waits, and is then
/// written as one batch. Nobody waits while nobody else writes.
#[derive(Debug)]
pub struct Gather<T, R> {
    waiting: Mutex<VecDeque<Waiting<T, R>>>,
    /// How many batches may be written at the same time.
    lanes: Semaphore,
    most: usize,
}

type Waiting<T, R> = (T, oneshot::Sender<R>);

impl<T: Send + 'static, R: Send + 'static> Gather<T, R> {
    /// Batches of up to `most`, `lanes` of them at the same time.
    pub fn new(lanes: usize, most: usize) -> Arc<Self> {
        Arc::new(Gather { waiting: Mutex::default(), lanes: Semaphore::new(lanes), most })
    }

    /// Has `item` written by `write`, which gets a batch and answers for each of it, in order; not `together`: a batch of
    /// one. As with [`detached`], the write goes on when the caller is dropped.
    ///
    /// # Errors
    /// 500 when the write panicked or took longer than two minutes.
    pub async fn write<F>(
        self: &Arc<Self>,
        item: T,
        together: bool,
        write: impl FnOnce(Vec<T>) -> F + Send + 'static,
    ) -> Result<R, Problem>
    where
        F: Future<Output = Vec<R>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let mut alone = vec![(item, answer)];
        if together {
            self.waiting().extend(alone.drain(..));
        }
        let this = Arc::clone(self);
        let task = async move {
            let (_lane, batch) = match together {
                true => this.next_batch().await,
                false => (None, alone),
            };
            let (items, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            if items.is_empty() {
                return;
            }
            for (answer, result) in answers.into_iter().zip(write(items).await) {
                // Who does not wait any more does not want to know.
                drop(answer.send(result));
            }
        };
        #[expect(clippy::disallowed_methods, reason = "closing the pools waits for its connection")]
        tokio::spawn(timeout(LIMIT, task.in_current_span()));
        answered.await.map_err(|lost| Problem::internal(&lost))
    }

    /// Whoever waits comes here once, and leaves with at least one of those who wait, if there are any: nobody is left behind.
    async fn next_batch(&self) -> (Option<SemaphorePermit<'_>>, Vec<Waiting<T, R>>) {
        // The semaphore is never closed.
        let lane = self.lanes.acquire().await.ok();
        let mut waiting = self.waiting();
        let count = waiting.len().min(self.most);
        (lane, waiting.drain(..count).collect())
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting<T, R>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use axum::http::StatusCode;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_write_goes_on_when_its_caller_is_dropped() {
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
    async fn a_write_that_the_database_never_answers_comes_to_an_end() {
        let answer = detached(std::future::pending::<Result<(), Problem>>()).await;
        assert_eq!(answer.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn what_comes_while_others_are_written_is_written_together() {
        let gather = Gather::new(1, 3);
        let batches = Arc::new(Mutex::new(Vec::new()));
        let (release, released) = oneshot::channel::<()>();
        let noted = |batches: &Arc<Mutex<Vec<Vec<u32>>>>| {
            let batches = Arc::clone(batches);
            move |batch: Vec<u32>| async move {
                batches.lock().unwrap().push(batch.clone());
                batch.iter().map(|n| n * 10).collect()
            }
        };
        let first = tokio::spawn({
            let gather = Arc::clone(&gather);
            async move {
                let slow = |batch: Vec<u32>| async move {
                    released.await.ok();
                    batch
                };
                gather.write(0, true, slow).await
            }
        });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let later: Vec<_> = (1..=5)
            .map(|n| {
                let (gather, note) = (Arc::clone(&gather), noted(&batches));
                tokio::spawn(async move { gather.write(n, true, note).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let alone = gather.write(6, false, noted(&batches)).await;
        assert_eq!(alone.unwrap(), 60, "who goes alone waits for nobody");
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap(), 0);
        for (n, answer) in (1..=5).zip(later) {
            assert_eq!(answer.await.unwrap().unwrap(), n * 10, "each has its own answer");
        }
        assert_eq!(*batches.lock().unwrap(), [vec![6], vec![1, 2, 3], vec![4, 5]]);
    }

    #[tokio::test]
    async fn a_panicking_batch_fails_all_of_it_and_nobody_else() {
        let gather = Gather::<u32, u32>::new(1, 8);
        let failed = gather.write(1, true, |_| async { panic!("boom") }).await;
        assert_eq!(failed.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(gather.write(2, true, |batch| async { batch }).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_panicking_write_is_an_internal_error() {
        let answer = detached(async { panic!("boom") as Result<(), Problem> }).await;
        assert_eq!(answer.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
