//! What a scenario runs on: versions, the suite's clock, and the number of database connections per role.

use std::collections::BTreeMap;

use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use crate::audit::{self, AuditError, Stores};

pub(super) struct Environment {
    /// By the database's clock, which all deadlines of the suite follow.
    pub(super) now: OffsetDateTime,
    pub(super) versions: Vec<(String, String)>,
}

pub(super) async fn read(stores: &Stores, revision: &str) -> Result<Environment, AuditError> {
    let mut connection = audit::connect_database(&stores.database_url).await?;
    let row = sqlx::query("select now(), current_setting('server_version')").fetch_one(&mut connection).await?;
    let broker = audit::connect_broker(stores).await?;
    let versions = [
        ("suite", format!("{} ({revision})", env!("CARGO_PKG_VERSION"))),
        ("PostgreSQL", row.get(1)),
        ("NATS", broker.client().server_info().version),
    ];
    Ok(Environment { now: row.get(0), versions: versions.map(|(name, version)| (name.to_owned(), version)).into() })
}

/// The number of connections to the suite's database per role, without the auditor's.
pub(super) async fn connections(connection: &mut PgConnection) -> sqlx::Result<BTreeMap<String, i64>> {
    let query = sqlx::query_as(
        "select usename::text, count(*)
        from pg_stat_activity
        where datname = current_database() and usename <> current_user
        group by usename",
    );
    let counted: Vec<(String, i64)> = query.fetch_all(connection).await?;
    Ok(counted.into_iter().collect())
}
