//! The URLs of the suite. Each participant of the manifest has an argument of its own: `--order-url`, or `ORDER_URL`.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use contracts::{PARTICIPANTS, SERVICES};
use saga::Service;

#[derive(Debug, Clone, clap::Args)]
pub struct Addresses {
    #[command(flatten)]
    pub participants: ParticipantUrls,
    #[arg(long, env = "GATEWAY_URL", default_value = "http://127.0.0.1:8084")]
    pub gateway_url: String,
    /// The token for the administration routes
    #[arg(long, env = "ADMIN_TOKEN", default_value = "dev-admin-token", hide_env_values = true)]
    pub admin_token: String,
}

impl Addresses {
    pub fn of(&self, service: Service) -> &str {
        let found = self.participants.0.iter().find(|(of, _)| *of == service);
        found.map_or("", |(_, url)| url)
    }

    /// The environment with which another program reaches the same suite.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let participants = self.participants.0.iter().map(|(of, url)| (variable(*of), url.clone()));
        let own = [("GATEWAY_URL", &self.gateway_url), ("ADMIN_TOKEN", &self.admin_token)];
        participants.chain(own.map(|(name, value)| (name.to_owned(), value.clone()))).collect()
    }

    /// The same, with another replica's URL for one service.
    #[must_use]
    pub fn with(mut self, service: Service, url: &str) -> Self {
        for (_, of) in self.participants.0.iter_mut().filter(|(of, _)| *of == service) {
            url.clone_into(of);
        }
        self
    }
}

#[derive(Debug, Clone)]
pub struct ParticipantUrls(Vec<(Service, String)>);

impl ParticipantUrls {
    pub fn new(url: impl Fn(Service) -> String) -> Self {
        ParticipantUrls(SERVICES.map(|service| (service, url(service))).into())
    }
}

fn argument(service: Service) -> String {
    format!("{service}-url")
}

fn variable(service: Service) -> String {
    argument(service).replace('-', "_").to_uppercase()
}

impl Args for ParticipantUrls {
    fn augment_args(command: Command) -> Command {
        PARTICIPANTS.iter().fold(command, |command, participant| {
            let name = argument(participant.service);
            let default = format!("http://127.0.0.1:{}", participant.port);
            command.arg(Arg::new(name.clone()).long(name).env(variable(participant.service)).default_value(default))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ParticipantUrls {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::new(|service| matches.get_one::<String>(&argument(service)).cloned().unwrap_or_default()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
