//! What a scenario runs on: versions, the suite's clock, and who holds how many connections to the database.

use std::collections::BTreeMap;

use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use crate::audit::{self, AuditError, Stores};

/// What was running, and when.
pub(super) struct Surroundings {
    /// By the database's clock, which all deadlines of the suite follow.
    pub(super) now: OffsetDateTime,
    /// Names and versions.
    pub(super) versions: Vec<(String, String)>,
}

pub(super) async fn look(stores: &Stores, revision: &str) -> Result<Surroundings, AuditError> {
    let mut connection = audit::connect_database(&stores.database_url).await?;
    let row = sqlx::query("select now(), current_setting('server_version')").fetch_one(&mut connection).await?;
    let broker = audit::connect_broker(stores).await?;
    let versions = [
        ("suite", format!("{} ({revision})", env!("CARGO_PKG_VERSION"))),
        ("PostgreSQL", row.get(1)),
        ("NATS", broker.client().server_info().version),
    ];
    Ok(Surroundings { now: row.get(0), versions: versions.map(|(name, version)| (name.to_owned(), version)).into() })
}

/// How many connections each role has to the suite's database, but for the auditor's.
pub(super) async fn connections(connection: &mut PgConnection) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let counted: Vec<(String, i64)> = sqlx::query_as(
        "select usename::text, count(*)
        from pg_stat_activity
        where datname = current_database() and usename <> current_user
        group by usename",
    )
    .fetch_all(connection)
    .await?;
    Ok(counted.into_iter().collect())
}
