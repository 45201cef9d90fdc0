//! `provision` with real servers: what it creates, the permissions of its roles and users, and failing servers.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic and may start tasks")]

mod broker;
mod database;
mod matrix;
mod permissions;
mod program;

use std::path::PathBuf;

use testkit::Nats;

/// A broker with the suite's users; each password is the user's name.
async fn guarded_nats() -> Nats {
    let passwords: Vec<_> = contracts::broker_users().map(|(user, variable)| (variable, user)).collect();
    Nats::with_config(&nats_conf(), &passwords).await.unwrap()
}

fn nats_conf() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docker/nats.conf")
}
