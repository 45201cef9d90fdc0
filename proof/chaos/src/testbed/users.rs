//! The users of the suite's broker: those of production with their permissions and their names as passwords, and one without
//! permission limits, for nemeses.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use async_nats::ConnectOptions;

pub(super) const PROVISION: &str = "provision";
pub(super) const AUDITOR: &str = "auditor";
/// The additional user, without permission limits.
const UNRESTRICTED: &str = "unrestricted";

/// The configuration of production, so that a missing permission is missing here, too.
pub(super) const PRODUCTION: &str = include_str!("../../../../docker/nats.conf");
/// The beginning of the list of users.
const USERS: &str = "\n  users: [\n";

/// The environment variables of the configuration.
pub(super) fn passwords() -> Vec<(String, &'static str)> {
    contracts::broker_users().map(|(user, variable)| (variable, user)).collect()
}

/// Writes the broker's configuration, based on that of production. The broker reads it at every start.
pub(super) fn write_configuration(folder: &Path, production: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join("nats.conf");
    std::fs::write(&file, configuration(production)?)?;
    Ok(file)
}

/// The settings of a program that connects as this user.
pub(super) fn settings(user: &str) -> [(String, String); 2] {
    [("NATS_USER".to_owned(), user.to_owned()), ("NATS_PASSWORD".to_owned(), user.to_owned())]
}

/// Credentials without permission limits.
pub(super) fn unrestricted() -> ConnectOptions {
    ConnectOptions::with_user_and_password(UNRESTRICTED.to_owned(), UNRESTRICTED.to_owned())
}

fn configuration(production: &str) -> anyhow::Result<String> {
    ensure!(production.matches(USERS).count() == 1, "the broker's configuration has no list of users, or several");
    // A user without a list of permissions has all of them.
    let unrestricted = format!("{USERS}    {{user: {UNRESTRICTED}, password: {UNRESTRICTED}}}\n");
    Ok(production.replace(USERS, &unrestricted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unrestricted_user_is_added_to_those_of_production() {
        let added = "    {user: unrestricted, password: unrestricted}\n";
        let configuration = configuration(PRODUCTION).unwrap();
        assert_eq!(configuration.replace(added, ""), PRODUCTION);
        assert!(configuration.contains(&format!("users: [\n{added}    {{\n      user: order\n")));
    }
}
