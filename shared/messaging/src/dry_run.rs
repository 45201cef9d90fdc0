//! A dry run: a step runs in a transaction that is rolled back at the end. No other system is called, no metric is updated, and
//! no fault is injected. It is attached to the step's [`Batch`](crate::Batch); all units of work for that batch share its
//! transaction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::{Postgres, Transaction};

#[derive(Debug, Default)]
pub(crate) struct Trial(Mutex<Run>);

#[derive(Debug, Default)]
struct Run {
    seen: Seen,
    /// The transaction with all writes so far. The step's next unit of work continues in it.
    open: Option<Transaction<'static, Postgres>>,
}

/// The observations of a dry run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The types of the events that would be published, in order.
    pub(crate) emits: Vec<String>,
    /// Why parts of the work would be no-ops.
    pub(crate) refusals: Vec<String>,
    pub(crate) calls: Vec<&'static str>,
    committed: bool,
    /// A later unit of work was rolled back, and with it the writes of an earlier, "committed" one: the result is unreliable.
    pub(crate) inconsistent: bool,
}

impl Trial {
    pub(crate) fn begin() -> Arc<Self> {
        Arc::default()
    }

    /// Rolls back the transaction and returns the observations.
    pub(crate) async fn end(&self) -> Seen {
        let Run { seen, open } = std::mem::take(&mut *self.run());
        if let Some(transaction) = open
            && let Err(error) = transaction.rollback().await
        {
            // The server rolls back when it notices that the connection is gone.
            tracing::warn!(%error, "the rollback of a dry run was not confirmed");
        }
        seen
    }

    /// The transaction to continue in, if an earlier unit of work has "committed".
    pub(crate) fn resume(&self) -> Option<Transaction<'static, Postgres>> {
        let mut run = self.run();
        let open = run.open.take();
        run.seen.inconsistent |= run.seen.committed && open.is_none();
        open
    }

    /// Replaces a commit: keeps the transaction open.
    pub(crate) fn keep(&self, transaction: Transaction<'static, Postgres>, emits: impl Iterator<Item = String>) {
        let mut run = self.run();
        run.open = Some(transaction);
        run.seen.committed = true;
        run.seen.emits.extend(emits);
    }

    pub(crate) fn would_call(&self, what: &'static str) {
        self.run().seen.calls.push(what);
    }

    pub(crate) fn refused_by_state(&self, reason: &str) {
        self.run().seen.refusals.push(reason.to_owned());
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
