//! `provision` with real servers: what it creates, the permissions of its roles and users, and failing servers.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic and may start tasks")]

mod broker;
mod database;
mod matrix;
mod permissions;
mod program;

use std::{
    fs,
    path::{Path, PathBuf},
};

use provision::nats_conf;
use testkit::Nats;

/// A broker with the suite's users; each password is the user's name.
async fn guarded_nats() -> Nats {
    with_users(&nats_conf_file()).await
}

/// A broker of one form of the configuration; it cannot be started again.
async fn guarded_nats_of(accounts: bool) -> Nats {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), form(accounts)).unwrap();
    with_users(file.path()).await
}

async fn with_users(config: &Path) -> Nats {
    let passwords: Vec<_> = contracts::broker_users().map(|(user, variable)| (variable, user)).collect();
    Nats::with_config(config, &passwords).await.unwrap()
}

fn form(accounts: bool) -> String {
    if accounts { nats_conf::render_accounts() } else { nats_conf::render() }
}

fn nats_conf_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docker/nats.conf")
}
