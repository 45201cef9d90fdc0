//! The audit: every invariant of the suite, checked on one snapshot of the database and compared
//! with the outside world (the gateway's books, the broker's streams). It writes nothing.

mod acknowledged;
mod broker;
mod gateway;
mod invariant;
mod ledger;
mod report;
mod settle;
mod snapshot;
mod streams;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

pub(crate) use broker::{connect as connect_broker, deliveries};
pub use invariant::{Invariant, Violations, invariants};
pub use report::{Report, Verdict};
pub(crate) use snapshot::connect as connect_database;
pub use snapshot::{check, leave_out_in_flight};
pub(crate) use streams::{Forgotten, event_ids, forgotten};

use sqlx::Connection;

use self::{gateway::Gateway, settle::InFlight, snapshot::Reach};
use crate::{suite::SuiteError, watch};

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

/// `console audit`.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    #[command(flatten)]
    stores: Stores,
    /// The payment gateway, whose books are compared with ours
    #[arg(long, env = "GATEWAY_URL", default_value = "http://127.0.0.1:8084")]
    gateway_url: String,
    #[command(flatten)]
    options: Options,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    watch: watch::WatchArgs,
}

impl AuditArgs {
    /// Whether it audits again and again, until it is asked to stop.
    pub(crate) fn goes_on(&self) -> bool {
        self.watch.watch
    }
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

/// Audits and prints the report; `Ok(false)` when there are violations. Or goes on and on, see [`watch`].
pub async fn command(args: &AuditArgs) -> anyhow::Result<bool> {
    if args.watch.watch {
        return watch::command(&args.watch, &args.stores, &args.gateway_url).await;
    }
    let report = audit(&args.stores, &args.gateway_url, &args.options).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(report.clean)
}

/// Waits for what is in flight if asked to, reads what consumers have acknowledged and how far the gateway's ledger is,
/// takes the snapshot, then reads the streams. In this order what was acknowledged must be in the snapshot, and everything
/// that the snapshot holds must be in the streams, too.
///
/// Orders may be placed meanwhile. Whatever is in flight at the snapshot's moment is left out where it cannot be compared,
/// by name, unless it should have ended: it may not be in flight for ever, since every saga has a deadline.
///
/// # Errors
/// When one of the stores cannot be read.
pub async fn audit(stores: &Stores, gateway_url: &str, options: &Options) -> Result<Report, AuditError> {
    let began = Instant::now();
    let broker = broker::connect(stores).await?;
    let mut connection = snapshot::connect(&stores.database_url).await?;
    let mut verdicts = Vec::new();
    let mut unsettled = InFlight::default();
    if !options.settle.is_zero() {
        unsettled = settle::settle(&mut connection, &broker, options.settle).await?;
        verdicts.push(unsettled.verdict(options.settle));
    }
    let floors = acknowledged::floors(&broker).await?;
    let gateway = Gateway::new(gateway_url).await?;
    let snapshot = snapshot::take(&mut connection, &gateway, &unsettled, options).await?;
    verdicts.extend(snapshot.verdicts);
    let reach = Reach::of(options);
    let streams =
        streams::check(&broker, &mut connection, snapshot.published, &floors, reach, &options.deleted).await?;
    verdicts.extend(streams);
    connection.close().await?;
    if options.allow_dead_letters {
        verdicts.iter_mut().filter(|v| v.name == "dead_letters").for_each(|v| v.tolerated = true);
    }
    Ok(Report::new(verdicts, began.elapsed()))
}
