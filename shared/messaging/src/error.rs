//! Errors between a transaction and an effect, classified by how they are handled. A business refusal is not an error but an
//! event.

use std::error::Error as StdError;

/// Why a step did not commit. The variant decides what happens next, and whether an attempt is counted.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The database, the broker or another system is unavailable: the consumer pauses; no attempt is counted.
    #[error("unavailable: {0}")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
    /// Lost a race for locks (deadlock, lock timeout): the same batch is retried at once.
    #[error("contended: {0}")]
    Contended(#[source] sqlx::Error),
    /// Failed because of an event: the batch is split until the event is alone, which is then retried after a wait and becomes a
    /// dead letter after the step's last attempt.
    #[error("failed: {0}")]
    Failed(#[source] Box<dyn StdError + Send + Sync>),
    /// Can never succeed: the event becomes a dead letter at once.
    #[error("poison: {0}")]
    Poison(#[source] Box<dyn StdError + Send + Sync>),
}

impl StepError {
    pub fn failed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        StepError::Failed(error.into())
    }

    /// Whether the error is an injected fault.
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

/// The meaning of a database error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Unavailable,
    Contended,
    Failed,
}

/// Prefixes of the SQLSTATEs that mean that the server is unavailable.
const UNAVAILABLE: [&str; 10] = ["08", "28", "3D000", "53", "55000", "57P", "58", "25006", "25P03", "XX001"];

impl Severity {
    /// Classifies by SQLSTATE. Unavailable: classes 08 (connection), 28 (login refused), 53 (resources), 57P (shutdown) and 58
    /// (system), 3D000 and 55000 (no such database, or it is closed), 25P03 (idle in a transaction for too long: this process
    /// was frozen), 25006 (the server is a standby), XX001 (a page cannot be read: the operator's case, not the event's), and
    /// errors before the statement reached the server. Contended: 40001, 40P01, 55P03 and 57014 (statement timeout, as behind a
    /// lock).
    pub fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database) => match database.code().as_deref() {
                Some("40001" | "40P01" | "55P03" | "57014") => Severity::Contended,
                Some(code) if UNAVAILABLE.iter().any(|c| code.starts_with(c)) => Severity::Unavailable,
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

/// The chain of an error in one line, outermost first. NULs, which may come from input, are replaced, because PostgreSQL cannot
/// store them in a text column.
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
