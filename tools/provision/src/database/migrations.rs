//! The tables: those of the sagas once, those of messaging in each service's schema, and the services' own.

use sqlx::{
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};

use super::Error;

/// Applies what is not yet applied, everywhere.
pub(super) async fn run(options: &PgConnectOptions) -> Result<(), Error> {
    saga_store::migrate(options).await.map_err(failed(saga_store::SCHEMA, "_migration"))?;
    let own: [(&str, Migrator); 3] = [
        ("orders", sqlx::migrate!("../../migrations/order")),
        ("inventory", sqlx::migrate!("../../migrations/inventory")),
        ("payment", sqlx::migrate!("../../migrations/payment")),
    ];
    for (schema, migrations) in own {
        messaging::migrate(options, schema).await.map_err(failed(schema, "_messaging_migration"))?;
        let applied = messaging::apply_migrations(options, schema, "_migration", &migrations).await;
        applied.map_err(failed(schema, "_migration"))?;
    }
    Ok(())
}

fn failed(schema: &'static str, ledger: &str) -> impl FnOnce(MigrateError) -> Error {
    let ledger = format!("{schema}.{ledger}");
    move |source| Error::Migration { schema, ledger, source }
}
