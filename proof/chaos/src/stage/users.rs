//! Who may do what at the suite's broker: the users of production with the rights of production, each of whom has its
//! name as password, and one more who may do everything, for whoever breaks things.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use async_nats::ConnectOptions;

pub(super) const PROVISION: &str = "provision";
pub(super) const AUDITOR: &str = "auditor";
/// The one of whom production knows nothing.
const STRANGER: &str = "stranger";

/// A right that somebody lacks in production is lacking here, too.
pub(super) const PRODUCTION: &str = include_str!("../../../../docker/nats.conf");
/// Where the list of users begins.
const USERS: &str = "\n  users: [\n";

/// What the configuration is told by its environment.
pub(super) fn passwords() -> Vec<(String, &'static str)> {
    contracts::broker_users().map(|(user, variable)| (variable, user)).collect()
}

/// Writes the broker's configuration, after that of production. The broker reads it again whenever it starts.
pub(super) fn write_configuration(folder: &Path, production: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join("nats.conf");
    std::fs::write(&file, configuration(production)?)?;
    Ok(file)
}

/// By which settings a program is this user.
pub(super) fn settings(user: &str) -> [(String, String); 2] {
    [("NATS_USER".to_owned(), user.to_owned()), ("NATS_PASSWORD".to_owned(), user.to_owned())]
}

/// Who may do everything.
pub(super) fn stranger() -> ConnectOptions {
    ConnectOptions::with_user_and_password(STRANGER.to_owned(), STRANGER.to_owned())
}

fn configuration(production: &str) -> anyhow::Result<String> {
    ensure!(production.matches(USERS).count() == 1, "the broker's configuration has no list of users, or several");
    // A user without permissions may do everything.
    let stranger = format!("{USERS}    {{user: {STRANGER}, password: {STRANGER}}}\n");
    Ok(production.replace(USERS, &stranger))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stranger_comes_on_top_of_the_users_of_production() {
        let added = "    {user: stranger, password: stranger}\n";
        let configuration = configuration(PRODUCTION).unwrap();
        assert_eq!(configuration.replace(added, ""), PRODUCTION);
        assert!(configuration.contains(&format!("users: [\n{added}    {{\n      user: order\n")));
    }
}
