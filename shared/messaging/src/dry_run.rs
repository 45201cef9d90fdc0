//! A dry run: a step does all it would do, in a transaction that is rolled back at the end. No other system is called, nothing
//! is counted, and no fault is injected. It comes with the step's [`Batch`](crate::Batch), and each transaction that is begun
//! for that batch belongs to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::{Postgres, Transaction};

/// One dry run.
#[derive(Debug, Default)]
pub(crate) struct Trial(Mutex<Run>);

#[derive(Debug, Default)]
struct Run {
    seen: Seen,
    /// What would have been committed. The step's next unit of work goes on in it and sees what is written there.
    open: Option<Transaction<'static, Postgres>>,
}

/// What a dry run came across.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The types of the events that would be published, in their order.
    pub(crate) emits: Vec<String>,
    /// Why parts of the work were refused by the state they met.
    pub(crate) refusals: Vec<String>,
    /// Who would be called, and for what.
    pub(crate) calls: Vec<&'static str>,
    committed: bool,
    /// A unit of work that went on where another had ended was given up, and the other's with it: what the step
    /// says after that is not to be relied on.
    pub(crate) torn: bool,
}

impl Trial {
    pub(crate) fn begin() -> Arc<Self> {
        Arc::default()
    }

    /// Rolls back whatever was done.
    pub(crate) async fn end(&self) -> Seen {
        let Run { seen, open } = std::mem::take(&mut *self.run());
        if let Some(transaction) = open
            && let Err(error) = transaction.rollback().await
        {
            // The server rolls back when it notices that the connection is gone.
            tracing::warn!(%error, "the end of a dry run was not confirmed");
        }
        seen
    }

    /// The transaction in which this dry run goes on, if it has come to a commit before.
    pub(crate) fn go_on(&self) -> Option<Transaction<'static, Postgres>> {
        let mut run = self.run();
        let open = run.open.take();
        run.seen.torn |= run.seen.committed && open.is_none();
        open
    }

    /// Takes the place of a commit.
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
