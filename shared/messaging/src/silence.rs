//! A server that does not answer any more. It ends each statement itself after a while, so who waits for much longer
//! waits on a half-open connection, for an answer that nobody is going to send.

use std::{cell::Cell, io, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

/// How long the server may take for one answer: longer than it lets any statement run, which is ten seconds at most.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// How long it may take for several.
pub(crate) const ANSWERS_LIMIT: Duration = Duration::from_secs(30);

/// A process that was frozen may have an answer that it has not read yet; this is the time to do so.
const UNREAD: Duration = Duration::from_millis(100);

tokio::task_local! {
    /// Since when the unit of work in this task waits for an answer.
    static WAITING: Cell<Option<Instant>>;
}

/// The answer to a statement, or that there is none.
pub(crate) async fn answered<T>(statement: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    timeout(ANSWER_LIMIT, statement).await.unwrap_or_else(|_| Err(no_answer()))
}

/// The same for several statements.
pub(crate) async fn all_answered<T, E: From<sqlx::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    timeout(ANSWERS_LIMIT, work).await.unwrap_or_else(|_| Err(no_answer().into()))
}

/// Runs `work`, and gives it up when a unit of work in it gets no answer. Whatever else it waits for may take its time.
pub(crate) async fn unless_silent<T>(work: impl Future<Output = T>, silent: impl FnOnce(sqlx::Error) -> T) -> T {
    // On the heap, because the future of a whole step is large.
    let mut work = Box::pin(work);
    let watched = async move {
        loop {
            let due = WAITING.with(Cell::get).unwrap_or_else(Instant::now) + ANSWER_LIMIT;
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = sleep_until(due) => {}
            }
            let since = WAITING.with(Cell::get);
            if since.is_some_and(|since| since.elapsed() >= ANSWER_LIMIT) {
                match timeout(UNREAD, &mut work).await {
                    Ok(output) => return output,
                    Err(_) if WAITING.with(Cell::get) == since => return silent(no_answer()),
                    Err(_) => {}
                }
            }
        }
    };
    WAITING.scope(Cell::new(None), watched).await
}

/// The last sign of life of the transaction that holds it.
#[derive(Debug)]
pub(crate) struct Conversation(());

impl Conversation {
    pub(crate) fn begin() -> Self {
        let conversation = Conversation(());
        conversation.ask();
        conversation
    }

    /// Something is asked now: what was asked before is answered.
    pub(crate) fn ask(&self) {
        let _ = WAITING.try_with(|waiting| waiting.set(Some(Instant::now())));
    }

    /// Nothing is asked for a while.
    pub(crate) fn rest(&self) {
        let _ = WAITING.try_with(|waiting| waiting.set(None));
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.rest();
    }
}

fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database does not answer"))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use tokio::time::sleep;

    use super::*;
    use crate::Severity;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn watched(work: impl Future<Output = ()>) -> Result<(), sqlx::Error> {
        unless_silent(work.map(Ok), Err).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_never_answers_is_away() {
        let silent = answered(pending::<Result<(), sqlx::Error>>()).await.expect_err("no answer");
        assert_eq!(Severity::of(&silent), Severity::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_of_work_that_gets_no_answer_is_given_up() {
        let begun = Instant::now();
        let silent = watched(async {
            sleep(MINUTE).await;
            let _conversation = Conversation::begin();
            pending().await
        });
        assert_eq!(Severity::of(&silent.await.expect_err("no answer")), Severity::Unavailable);
        assert_eq!(begun.elapsed(), MINUTE + ANSWER_LIMIT + UNREAD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_watched_for_itself_ends_before_the_whole_does() {
        let outcome = watched(async {
            let part = watched(async {
                let _conversation = Conversation::begin();
                pending().await
            });
            assert!(part.await.is_err());
            sleep(MINUTE).await;
        });
        assert!(outcome.await.is_ok(), "nothing is asked any more");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_waits_to_be_read_at_the_last_moment_counts() {
        let outcome = watched(async {
            let conversation = Conversation::begin();
            sleep(ANSWER_LIMIT + UNREAD / 2).await;
            conversation.ask();
            sleep(ANSWER_LIMIT / 2).await;
        });
        assert!(outcome.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_answered_and_what_is_no_question_may_take_its_time() {
        let outcome = watched(async {
            let conversation = Conversation::begin();
            for _ in 0..10 {
                sleep(ANSWER_LIMIT - Duration::from_millis(1)).await;
                conversation.ask();
            }
            conversation.rest();
            sleep(MINUTE).await;
            drop(Conversation::begin());
            sleep(MINUTE).await;
        });
        assert!(outcome.await.is_ok());
    }
}
