//! What can go wrong between a transaction and an effect, sorted by what is to be done about it.
//! A business refusal is not in here: it is an event.

use std::error::Error as StdError;

/// Why a step did not commit. The kinds differ in what happens next, and in whether it counts.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The database, the broker or another system is away: the consumer pauses; nothing is counted.
    #[error("unavailable: {0}")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
    /// Lost against another transaction (deadlock, lock timeout): the same batch is tried again at once.
    #[error("contended: {0}")]
    Contended(#[source] sqlx::Error),
    /// Failed for this event's sake: the batch is split until the event stands alone, which is then
    /// tried again after a wait, and becomes a dead letter after the step's last attempt.
    #[error("failed: {0}")]
    Failed(#[source] Box<dyn StdError + Send + Sync>),
    /// Can never succeed: a dead letter at once.
    #[error("poison: {0}")]
    Poison(#[source] Box<dyn StdError + Send + Sync>),
}

impl StepError {
    pub fn failed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        StepError::Failed(error.into())
    }

    /// Whether somebody made this happen on purpose.
    pub(crate) fn is_injected(&self) -> bool {
        let StepError::Unavailable(error) = self else { return false };
        match error.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Io(io)) => io.get_ref().is_some_and(|inner| inner.is::<faults::Injected>()),
            _ => error.is::<faults::Injected>(),
        }
    }

    pub fn unavailable(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        StepError::Unavailable(error.into())
    }
}

impl From<sqlx::Error> for StepError {
    fn from(error: sqlx::Error) -> Self {
        match Severity::of(&error) {
            Severity::Unavailable => StepError::Unavailable(error.into()),
            Severity::Contended => StepError::Contended(error),
            Severity::Failed => StepError::Failed(error.into()),
        }
    }
}

impl From<saga::IllegalTransition> for StepError {
    fn from(error: saga::IllegalTransition) -> Self {
        StepError::Failed(error.into())
    }
}

/// What a database error says about the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Unavailable,
    Contended,
    Failed,
}

/// Beginnings of the SQLSTATEs that say that the server is away.
const AWAY: [&str; 10] = ["08", "28", "3D000", "53", "55000", "57P", "58", "25006", "25P03", "XX001"];

impl Severity {
    /// Sorts by SQLSTATE: classes 08 (connection), 28 (login refused), 53 (resources), 57P (shutdown) and 58 (system),
    /// 3D000 and 55000 (no such database, or it is closed), 25P03 (idle in a transaction for too long: we were frozen), and
    /// everything that never reached the server, mean that it is away; 40001, 40P01, 55P03 and 57014
    /// (statement timeout: somebody holds a lock) are lost races.
    pub fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database) => match database.code().as_deref() {
                Some("40001" | "40P01" | "55P03" | "57014") => Severity::Contended,
                Some(code) if AWAY.iter().any(|c| code.starts_with(c)) => Severity::Unavailable,
                _ => Severity::Failed,
            },
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::BeginFailed
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Severity::Unavailable,
            _ => Severity::Failed,
        }
    }
}

/// The whole chain of an error in one line, outermost first. It may repeat what came from outside, a NUL for instance,
/// which no text column takes.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text.replace('\0', "\u{fffd}")
}
