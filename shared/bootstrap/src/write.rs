//! Writes that outlive their request. axum drops a handler when its client disconnects or the request times out,
//! and sqlx may leave a transaction open when `begin` is dropped, so a write runs in a task of its own.

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

/// How long a write may take. What takes longer waits for a server that is not there any more.
const LIMIT: Duration = Duration::from_secs(30);

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
    detached_within(LIMIT, write).await
}

/// The same for what may take longer.
///
/// # Errors
/// As [`detached`]'s, with `limit` for the half minute.
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
        Ok(Err(_)) => Err(no_answer()),
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

type Waiting<T, R> = (T, oneshot::Sender<Result<R, Problem>>);

/// How many full batches may wait; who comes then is sent away.
const PATIENCE: usize = 4;

impl<T: Send + 'static, R: Send + 'static> Gather<T, R> {
    /// Batches of up to `most`, `lanes` of them at the same time.
    pub fn new(lanes: usize, most: usize) -> Arc<Self> {
        Arc::new(Gather { waiting: Mutex::default(), lanes: Semaphore::new(lanes), most })
    }

    /// Has `item` written by `write`, which gets a batch and answers for each of it, in order. What has begun goes on when
    /// the caller is dropped; what still waits then is forgotten.
    ///
    /// # Errors
    /// 503 when too many wait already, or the write takes longer than half a minute; 500 when the write panicked.
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
            if waiting.len() >= PATIENCE * self.most {
                return Err(Problem::unavailable("Too many want to write at once.", 1));
            }
            waiting.push_back((item, answer));
        }
        let this = Arc::clone(self);
        // Of nobody's span: what it writes is mostly others'.
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
            let results = match timeout(LIMIT, write(items)).await {
                Ok(results) => results.into_iter().map(Ok).collect(),
                Err(_) => answers.iter().map(|_| Err(no_answer())).collect::<Vec<_>>(),
            };
            for (answer, result) in answers.into_iter().zip(results) {
                // Who does not wait any more does not want to know.
                drop(answer.send(result));
            }
        });
        answered.await.unwrap_or_else(|lost| Err(Problem::internal(&lost)))
    }

    /// Whoever waits comes here once, and takes at least one of those who wait, if there are any: nobody is left behind.
    fn next_batch(&self) -> Vec<Waiting<T, R>> {
        let mut waiting = self.waiting();
        let mut batch = Vec::with_capacity(waiting.len().min(self.most));
        while batch.len() < self.most
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

fn no_answer() -> Problem {
    Problem::unavailable("The database does not answer.", 1)
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

    /// A gathering whose only lane is taken until the sender is told, or dropped.
    async fn taken(most: usize) -> (Arc<Gather<u32, usize>>, oneshot::Sender<()>) {
        let gather = Gather::new(1, most);
        let (release, released) = oneshot::channel::<()>();
        tokio::spawn({
            let gather = Arc::clone(&gather);
            async move {
                let slow = |batch: Vec<u32>| async move {
                    released.await.ok();
                    vec![0; batch.len()]
                };
                gather.write(0, slow).await
            }
        });
        while gather.lanes.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        (gather, release)
    }

    /// Answers with the size of the batch.
    fn come(gather: &Arc<Gather<u32, usize>>, n: u32) -> tokio::task::JoinHandle<Result<usize, Problem>> {
        let gather = Arc::clone(gather);
        tokio::spawn(async move {
            let sized = |batch: Vec<u32>| async move { batch.iter().map(|n| *n as usize * 10 + batch.len()).collect() };
            gather.write(n, sized).await
        })
    }

    #[tokio::test]
    async fn what_comes_while_others_are_written_is_written_together() {
        let (gather, release) = taken(3).await;
        let later: Vec<_> = (1..=5).map(|n| come(&gather, n)).collect();
        while gather.waiting().len() < 5 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        let mut answers = Vec::new();
        for answer in later {
            answers.push(answer.await.unwrap().unwrap());
        }
        assert_eq!(answers, [13, 23, 33, 42, 52], "batches of three and of two, and each has an answer of its own");
    }

    #[tokio::test]
    async fn who_hangs_up_before_it_begins_is_forgotten_and_who_finds_too_many_is_sent_away() {
        let (gather, release) = taken(1).await;
        let waiting: Vec<_> = (1..=PATIENCE as u32).map(|n| come(&gather, n)).collect();
        while gather.waiting().len() < PATIENCE {
            tokio::task::yield_now().await;
        }
        assert_eq!(come(&gather, 9).await.unwrap().unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        waiting[0].abort();
        while !gather.waiting()[0].1.is_closed() {
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
    async fn a_panicking_batch_fails_all_of_it_and_nobody_else() {
        let gather = Gather::<u32, u32>::new(1, 8);
        let failed = gather.write(1, |_| async { panic!("boom") }).await;
        assert_eq!(failed.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(gather.write(2, |batch| async { batch }).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_panicking_write_is_an_internal_error() {
        let answer = detached(async { panic!("boom") as Result<(), Problem> }).await;
        assert_eq!(answer.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
