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

/// The passwords under which the tests' brokers know their users.
const PASSWORDS: [(&str, &str); 5] = [
    ("ORDER_NATS_PASSWORD", "order"),
    ("INVENTORY_NATS_PASSWORD", "inventory"),
    ("PAYMENT_NATS_PASSWORD", "payment"),
    ("PROVISION_NATS_PASSWORD", "provision"),
    ("AUDITOR_NATS_PASSWORD", "auditor"),
];

/// A broker with the suite's users, each of whom has its name as password.
async fn guarded_nats() -> Nats {
    Nats::with_config(&nats_conf(), &PASSWORDS).await.unwrap()
}

fn nats_conf() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docker/nats.conf")
}
