//! `provision` against real servers: what it makes, what the roles and users that it makes may do, and how it
//! behaves when the servers do not.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic and may start tasks")]

mod broker;
mod database;
mod matrix;
mod program;
mod rights;

use std::path::PathBuf;

use testkit::Nats;

/// A broker with the suite's users, each of whom has its name as password.
async fn guarded_nats() -> Nats {
    let passwords: Vec<_> = contracts::broker_users().map(|(user, variable)| (variable, user)).collect();
    Nats::with_config(&nats_conf(), &passwords).await.unwrap()
}

fn nats_conf() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docker/nats.conf")
}
