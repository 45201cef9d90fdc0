//! One read-only snapshot of the database: all SQL invariants see the same moment, and so do the
//! ledger and the receipts that are compared with the outside world.

use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use super::{
    AuditError, Verdict,
    acknowledged::{self, Had},
    invariant::{Invariant, Violations, invariants},
    ledger::{self, Ledger},
    streams::{self, Published},
};

/// All that is known of the snapshot's moment.
pub(super) struct Snapshot {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) ledger: Ledger,
    pub(super) published: Vec<Published>,
    pub(super) had: Had,
}

/// What is expected of the snapshot's moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Nothing is unfinished, but for events that are younger than this and wait in an outbox.
    Settled(Duration),
    /// Sagas are at work: of their orders only what holds at any moment is asked, and work that waits is no violation.
    AtWork,
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

/// What waits to be done, by a program or by an operator. If it waits too long, its saga is stuck, and that counts; the
/// catalogue has no saga, and order compares it by itself.
const WAITING: [&str; 3] = ["outbox_empty", "dead_letters", "catalogue_agrees"];

/// A connection that neither writes nor waits for ever.
pub(crate) async fn connect(database_url: &str) -> Result<PgConnection, AuditError> {
    let options: PgConnectOptions = database_url.parse()?;
    let limits = [("statement_timeout", "120000"), ("lock_timeout", "10000"), ("default_transaction_read_only", "on")];
    Ok(PgConnection::connect_with(&options.application_name("auditor").options(limits)).await?)
}

/// Checks all SQL invariants and reads what the other checks need, at one moment.
pub(super) async fn take(connection: &mut PgConnection, moment: Moment, reach: Reach) -> Result<Snapshot, AuditError> {
    let (settle, in_flight) = match moment {
        Moment::Settled(settle) => (settle, "counts"),
        Moment::AtWork => (Duration::ZERO, "allowed"),
    };
    let mut snapshot = connection.begin_with("begin isolation level repeatable read read only").await?;
    sqlx::query("select set_config('audit.settle', $1, true), set_config('audit.in_flight', $2, true)")
        .bind(format!("{} ms", settle.as_millis()))
        .bind(in_flight)
        .execute(&mut *snapshot)
        .await?;
    let mut verdicts = Vec::new();
    for invariant in invariants().iter().filter(|i| moment != Moment::AtWork || !WAITING.contains(&i.name)) {
        let found = check(&mut snapshot, invariant).await?;
        verdicts.push(Verdict::new(invariant.name, invariant.sentence(), found));
    }
    let ledger = ledger::read(&mut snapshot, reach).await?;
    let published = streams::published(&mut snapshot, reach).await?;
    let had = acknowledged::had(&mut snapshot, reach).await?;
    snapshot.commit().await?;
    Ok(Snapshot { verdicts, ledger, published, had })
}

/// The violations of one invariant, as the connection's transaction sees the database.
///
/// # Errors
/// The database's, also when the invariant's SQL does not fit the schema.
pub async fn check(connection: &mut PgConnection, invariant: &Invariant) -> Result<Violations, sqlx::Error> {
    let mut rows = sqlx::query_scalar::<_, String>(invariant.sql).fetch(connection);
    let mut found = Violations::default();
    while let Some(violation) = rows.try_next().await? {
        found.add(violation);
    }
    Ok(found)
}
