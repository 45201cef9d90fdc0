//! The audit: every invariant of the suite, checked on one snapshot of the database and compared with the gateway's ledger and
//! the broker's streams. It writes nothing.

mod acknowledged;
mod broker;
mod forgotten;
mod gateway;
mod invariant;
mod options;
mod pages;
mod quiescence;
mod report;
mod snapshot;
mod streams;

use std::time::Instant;

pub(crate) use broker::{connect as connect_broker, deliveries};
pub(crate) use forgotten::{Forgotten, forgotten};
pub use invariant::{Invariant, Violations, invariants};
pub use options::{AuditError, Options, Stores};
pub(crate) use pages::event_ids;
pub use report::{Report, Totals, Verdict};
pub(crate) use snapshot::connect as connect_database;
pub use snapshot::{check, leave_out_in_flight};

use sqlx::Connection;

use self::{gateway::Gateway, quiescence::InFlight};
use crate::{say, suite::Addresses, watch::WatchArgs};

/// `console audit`: once, or repeatedly.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    #[command(flatten)]
    pub(crate) stores: Stores,
    #[command(flatten)]
    pub(crate) addresses: Addresses,
    #[command(flatten)]
    options: Options,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// Audits and prints the report; `Ok(false)` when there are violations.
pub async fn command(args: &AuditArgs) -> anyhow::Result<bool> {
    let report = audit(&args.stores, &args.addresses.gateway_url, &args.options).await?;
    if args.json {
        say(serde_json::to_string_pretty(&report)?);
    } else {
        say(report.to_string().trim_end());
    }
    Ok(report.clean)
}

/// Waits for what is in flight if `--settle` is given, reads the acknowledgement floors and the position of the gateway's ledger,
/// takes the snapshot, then reads the streams. In this order everything that was acknowledged must be in the snapshot, and
/// everything that the snapshot holds must be in the streams.
///
/// Orders may be placed meanwhile. What is in flight at the snapshot's moment and cannot be compared is left out by name, unless
/// it should have ended: every saga has a deadline.
pub async fn audit(stores: &Stores, gateway_url: &str, options: &Options) -> Result<Report, AuditError> {
    let began = Instant::now();
    let broker = broker::connect(stores).await?;
    let mut connection = snapshot::connect(&stores.database_url).await?;
    let mut verdicts = Vec::new();
    let mut unsettled = InFlight::default();
    if !options.settle.is_zero() {
        unsettled = quiescence::wait_until_quiescent(&mut connection, &broker, options.settle).await?;
        verdicts.push(unsettled.verdict(options.settle));
    }
    let floors = acknowledged::ack_floors(&broker).await?;
    let gateway = Gateway::new(gateway_url).await?;
    let snapshot = snapshot::take(&mut connection, &gateway, &unsettled, options).await?;
    verdicts.extend(snapshot.verdicts);
    let streams = streams::check(&broker, &mut connection, snapshot.published, &floors, options).await?;
    verdicts.extend(streams);
    connection.close().await?;
    if options.allow_dead_letters {
        verdicts.iter_mut().filter(|v| v.name == "dead_letters").for_each(|v| v.tolerated = true);
    }
    Ok(Report { totals: Some(snapshot.totals), ..Report::new(verdicts, began.elapsed()) })
}
