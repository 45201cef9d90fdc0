//! Supervised background work: a task that ends before the stop signal is a failure.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::{sync::SetOnce, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::http::panic_text;

/// A name for logs, and the work.
pub type Task = (&'static str, BoxFuture<'static, ()>);

/// Running background work. Clones share it.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failure: Arc<SetOnce<TaskFailed>>,
}

/// A background task ended before the stop signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task {task} {how}")]
pub struct TaskFailed {
    /// The task's name.
    pub task: &'static str,
    /// How it ended.
    pub how: String,
}

impl Tasks {
    /// Tasks that should end when `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), stop, failure: Arc::default() }
    }

    /// Starts work that must run until `stop` is cancelled. If it ends earlier or panics, the process ends.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let (stop, failure) = (self.stop.clone(), self.failure.clone());
        self.tracker.spawn(async move {
            let how = match AssertUnwindSafe(work).catch_unwind().await {
                Err(panic) => format!("panicked: {}", panic_text(&*panic)),
                Ok(()) if stop.is_cancelled() => return,
                Ok(()) => "ended early".to_owned(),
            };
            tracing::error!(task = name, how, "background work failed");
            // Keeps only the first failure; later ones are often its consequences.
            let _ = failure.set(TaskFailed { task: name, how });
        });
    }

    /// Waits until a task fails.
    pub async fn failed(&self) -> TaskFailed {
        self.failure.wait().await.clone()
    }

    /// Waits for all tasks to end, at most for `limit`.
    pub async fn finish(&self, limit: Duration) {
        self.tracker.close();
        if timeout(limit, self.tracker.wait()).await.is_err() {
            tracing::warn!(left = self.tracker.len(), ?limit, "background work did not end in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_ends_early_is_a_failure() {
        let tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("relay", async { panic!("boom") });
        assert_eq!(tasks.failed().await.to_string(), "the task relay panicked: boom");
        let tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("relay", async {});
        assert_eq!(tasks.failed().await.to_string(), "the task relay ended early");
    }

    #[tokio::test]
    async fn finish_waits_for_tasks_that_end_after_stop() {
        let stop = CancellationToken::new();
        let tasks = Tasks::new(stop.clone());
        let done = Arc::new(SetOnce::new());
        tasks.spawn("relay", {
            let (stop, done) = (stop.clone(), done.clone());
            async move {
                stop.cancelled().await;
                tokio::task::yield_now().await;
                let _ = done.set(());
            }
        });
        stop.cancel();
        tasks.finish(Duration::from_secs(5)).await;
        assert!(done.get().is_some());
        assert!(tasks.failed().now_or_never().is_none());
    }
}
