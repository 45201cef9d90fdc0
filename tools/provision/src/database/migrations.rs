//! The tables: those of the sagas once, those of messaging in each service's schema, and the services' own.

use contracts::Participant;
use sqlx::{
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};

use super::Error;

/// Applies what is not yet applied, everywhere.
pub(super) async fn run(options: &PgConnectOptions) -> Result<(), Error> {
    saga_store::migrate(options).await.map_err(failed(saga_store::SCHEMA, "_migration"))?;
    for Participant { service, schema, .. } in contracts::PARTICIPANTS {
        messaging::migrate(options, schema).await.map_err(failed(schema, "_messaging_migration"))?;
        let applied = messaging::apply_migrations(options, schema, "_migration", &of(service.0)).await;
        applied.map_err(failed(schema, "_migration"))?;
    }
    Ok(())
}

// `of`: a participant's own migrations, from the folder of its name; build.rs writes it.
include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

fn failed(schema: &'static str, ledger: &str) -> impl FnOnce(MigrateError) -> Error {
    let ledger = format!("{schema}.{ledger}");
    move |source| Error::Migration { schema, ledger, source }
}
