//! The tables: the saga schema, messaging's and the webhook's tables in each service's schema, and the services' own tables.

use contracts::Participant;
use sqlx::{
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};

use super::Error;

pub(super) async fn run(options: &PgConnectOptions) -> Result<(), Error> {
    saga_store::migrate(options).await.map_err(failed(saga_store::SCHEMA, "_migration"))?;
    for Participant { service, schema, .. } in contracts::PARTICIPANTS {
        messaging::migrate(options, schema).await.map_err(failed(schema, "_messaging_migration"))?;
        let applied = messaging::apply_migrations(options, schema, webhook::LEDGER, &webhook::MIGRATIONS).await;
        applied.map_err(failed(schema, webhook::LEDGER))?;
        let applied = messaging::apply_migrations(options, schema, "_migration", &of(service.0)).await;
        applied.map_err(failed(schema, "_migration"))?;
    }
    Ok(())
}

// `of`: the migrations of a participant's folder; build.rs writes it.
include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

fn failed(schema: &'static str, ledger: &str) -> impl FnOnce(MigrateError) -> Error {
    let ledger = format!("{schema}.{ledger}");
    move |source| Error::Migration { schema, ledger, source }
}
