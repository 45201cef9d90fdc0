//! The passwords of the participants and of the auditor, one argument each: `--order-db-password`, `--order-nats-password`.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use contracts::Participant;

use crate::database::Passwords;

pub struct UserPasswords {
    /// At the database.
    pub roles: Passwords,
    /// At the broker, if given. `provision` only validates them, before anything starts.
    pub users: Vec<(&'static str, Option<String>)>,
}

/// The users with a database role and a broker user: the names of user and role.
fn users() -> impl Iterator<Item = (&'static str, String)> {
    let participants =
        contracts::PARTICIPANTS.iter().map(|participant| (participant.service.0, Participant::role(participant)));
    participants.chain([("auditor", "auditor".to_owned())])
}

fn argument(user: &str, server: &str) -> String {
    format!("{user}-{server}-password")
}

fn password(user: &str, server: &str) -> Arg {
    let name = argument(user, server);
    let variable = name.replace('-', "_").to_uppercase();
    Arg::new(name.clone()).long(name).env(variable).hide_env_values(true)
}

impl Args for UserPasswords {
    fn augment_args(command: Command) -> Command {
        users().fold(command, |command, (user, role)| {
            let at_database = format!("Password of the role `{role}`. In development it defaults to the role's name");
            let at_broker = format!("Password of the broker's user `{user}`. It is only validated, if given");
            command
                .arg(password(user, "db").help(at_database).default_value(role))
                .arg(password(user, "nats").help(at_broker))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for UserPasswords {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |user: &str, server: &str| matches.get_one::<String>(&argument(user, server)).cloned();
        let roles = users().filter_map(|(user, role)| Some((role, given(user, "db")?))).collect();
        let users = users().map(|(user, _)| (user, given(user, "nats"))).collect();
        Ok(UserPasswords { roles: Passwords(roles), users })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
