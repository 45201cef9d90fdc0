//! What an audit reads, how strict it is, and why it can fail.

use std::{collections::HashSet, path::PathBuf, time::Duration};

use crate::suite::SuiteError;

/// The stores that the audit reads, with the permissions of the auditor.
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
    /// File of the only CA whose certificate the broker may have; with it, the connection is encrypted
    #[arg(long, env = "NATS_CA_FILE")]
    pub nats_ca_file: Option<PathBuf>,
}

impl Stores {
    /// The environment with which another program reads the same stores.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let Stores { database_url, nats_url, nats_user, nats_password, nats_ca_file } = self;
        let ca_file = nats_ca_file.as_ref().map(|file| ("NATS_CA_FILE", file.to_string_lossy().into_owned()));
        let all = [("DATABASE_URL", database_url), ("NATS_URL", nats_url), ("NATS_USER", nats_user)];
        let all = all.into_iter().chain([("NATS_PASSWORD", nats_password)]).map(|(name, value)| (name, value.clone()));
        all.chain(ca_file).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// How strict an audit is, and how long it waits.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// First wait until everything that is in flight now has ended, at most this long; what has not ended is a violation
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub settle: Duration,
    /// List dead letters, but do not count them as violations
    #[arg(long)]
    pub allow_dead_letters: bool,
    /// Check all payments, and the events of the last 20 hours, instead of the latest ones; takes longer
    #[arg(long)]
    pub whole: bool,
    /// Messages deleted on purpose, by stream and sequence: their absence is no violation
    #[arg(skip)]
    pub deleted: HashSet<(String, u64)>,
    /// Skip the invariants about work that waits for a program or an operator
    #[arg(skip)]
    pub at_work: bool,
}

impl Options {
    /// How many payments are looked up at the gateway by their keys; `None` is all.
    pub(super) fn payments(&self) -> Option<i64> {
        (!self.whole).then_some(2_000)
    }

    /// The age in hours up to which events are checked. Publish acknowledgements are kept for a day by default.
    pub(super) fn hours(&self) -> f64 {
        if self.whole { 20.0 } else { 1.0 }
    }
}

/// Why an audit failed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the database cannot be read")]
    Database(#[from] sqlx::Error),
    #[error("the broker cannot be read: {subject}")]
    Broker { subject: String, source: async_nats::Error },
    #[error("the gateway's ledger cannot be read")]
    Gateway(#[from] SuiteError),
}
