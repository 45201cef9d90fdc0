//! What an audit reads, and how strictly; and why there may be no verdict.

use std::{collections::HashSet, time::Duration};

use crate::suite::SuiteError;

/// The stores that the audit reads, with the rights of the auditor.
#[derive(Debug, Clone, clap::Args)]
pub struct Stores {
    /// The suite's database, as the read-only role `auditor`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// The suite's broker
    #[arg(long, env = "NATS_URL", hide_env_values = true, default_value = "nats://127.0.0.1:4222")]
    pub nats_url: String,
    /// The broker's read-only user; empty for a broker without users
    #[arg(long, env = "NATS_USER", default_value = "auditor")]
    pub nats_user: String,
    #[arg(long, env = "NATS_PASSWORD", default_value = "", hide_env_values = true)]
    pub nats_password: String,
}

/// How strict and how patient an audit is.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// First wait until everything that is in flight now has ended, this long at most; what has not is a violation
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub settle: Duration,
    /// List dead letters, but do not count them as violations
    #[arg(long)]
    pub allow_dead_letters: bool,
    /// Look at all payments, and at the events of the last 20 hours, instead of the latest ones; takes longer
    #[arg(long)]
    pub whole: bool,
    /// Messages that somebody has deleted on purpose, by stream and sequence: that they are gone is no violation
    #[arg(skip)]
    pub deleted: HashSet<(String, u64)>,
    /// Do not judge what waits to be done, by a program or by an operator
    #[arg(skip)]
    pub at_work: bool,
}

impl Options {
    pub(super) fn reach(&self) -> Reach {
        if self.whole { Reach::Whole } else { Reach::Latest }
    }
}

/// How far back it is looked where there may be much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Latest,
    Whole,
}

impl Reach {
    /// How many payments are looked up at the gateway one by one.
    pub(super) fn payments(self) -> Option<i64> {
        (self == Reach::Latest).then_some(2_000)
    }

    /// Whose events are looked at. Receipts are kept for a day as a rule.
    pub(super) fn hours(self) -> f64 {
        if self == Reach::Latest { 1.0 } else { 20.0 }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the database cannot be read")]
    Database(#[from] sqlx::Error),
    #[error("the broker cannot be read: {asked}")]
    Broker { asked: String, source: async_nats::Error },
    #[error("the gateway's books cannot be read")]
    Gateway(#[from] SuiteError),
}
