//! A dry run: a step does all it would do, in a transaction that is rolled back at the end. Nobody is called,
//! nobody is told, and no fault is injected. Whatever else a step has outside its [`UnitOfWork`](crate::UnitOfWork)
//! has to ask here first.

use std::cell::RefCell;

use sqlx::{Postgres, Transaction};

tokio::task_local! {
    static RUN: RefCell<Run>;
}

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

/// Whether the work this is asked from is a dry run.
pub fn is_on() -> bool {
    RUN.try_with(|_| ()).is_ok()
}

/// To be asked right before a call to another system: true in a dry run, which notes `what` and must not call.
#[must_use = "in a dry run nobody may be called"]
pub fn would_call(what: &'static str) -> bool {
    RUN.try_with(|run| run.borrow_mut().seen.calls.push(what)).is_ok()
}

/// Says why the event changes nothing: the state it meets is past it. Outside a dry run nobody asks.
pub fn refused_by_state(reason: &str) {
    let _ = RUN.try_with(|run| run.borrow_mut().seen.refusals.push(reason.to_owned()));
}

/// Runs `work` as a dry run in this task, and rolls back whatever it did. A task that `work` spawned would not
/// belong to it.
pub(crate) async fn scope<F: Future>(work: F) -> (F::Output, Seen) {
    RUN.scope(RefCell::default(), async {
        let output = work.await;
        let Run { seen, open } = RUN.with(RefCell::take);
        if let Some(transaction) = open
            && let Err(error) = transaction.rollback().await
        {
            // The server rolls back when it notices that the connection is gone.
            tracing::warn!(%error, "the end of a dry run was not confirmed");
        }
        (output, seen)
    })
    .await
}

/// The transaction in which this dry run goes on, if it has come to a commit before.
pub(crate) fn go_on() -> Option<Transaction<'static, Postgres>> {
    let go_on = |run: &RefCell<Run>| {
        let mut run = run.borrow_mut();
        let open = run.open.take();
        run.seen.torn |= run.seen.committed && open.is_none();
        open
    };
    RUN.try_with(go_on).ok().flatten()
}

/// Takes the place of a commit.
pub(crate) fn keep(transaction: Transaction<'static, Postgres>, emits: impl Iterator<Item = String>) {
    let _ = RUN.try_with(|run| {
        let mut run = run.borrow_mut();
        run.open = Some(transaction);
        run.seen.committed = true;
        run.seen.emits.extend(emits);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_runs_inside_is_a_dry_run() {
        assert!(!is_on() && !would_call("nobody"));
        refused_by_state("nobody listens");
        let (on, seen) = scope(async {
            refused_by_state("too late");
            is_on() && would_call("the bank")
        })
        .await;
        assert!(on && !is_on());
        assert_eq!((seen.refusals, seen.calls), (vec!["too late".to_owned()], vec!["the bank"]));
    }

    #[tokio::test]
    async fn two_dry_runs_at_the_same_time_do_not_hear_of_each_other() {
        let run = |what: &'static str| async move {
            let noted = would_call(what);
            tokio::task::yield_now().await;
            noted && would_call(what)
        };
        let ((_, one), (_, other)) = tokio::join!(scope(run("one")), scope(run("other")));
        assert_eq!((one.calls, other.calls), (vec!["one", "one"], vec!["other", "other"]));
    }
}
