//! The settings, by flag or environment variable; `provision --help` is the reference.

mod passwords;

use std::{io::IsTerminal, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use messaging::topology::{ConsumerSettings, StreamSettings, Topology};
use sqlx::postgres::PgConnectOptions;

pub use self::passwords::UserPasswords;
use crate::{
    broker::{self, Access},
    database,
};

/// Provisions the database and the broker for the services. Idempotent.
#[derive(Parser)]
#[command(name = "provision", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub broker: BrokerArgs,
    #[command(flatten)]
    pub passwords: UserPasswords,
    /// Password of Grafana's user `admin`. It is only validated, before anything starts, because Grafana does not distinguish
    /// production from development.
    #[arg(long, env = "GRAFANA_ADMIN_PASSWORD", hide_env_values = true)]
    pub grafana_admin_password: Option<String>,
    #[command(flatten)]
    pub log: LogArgs,
    /// Production refuses development passwords.
    #[arg(long, env = "APP_ENV", value_enum, default_value_t = AppEnv::Development)]
    pub app_env: AppEnv,
}

/// What to do instead of provisioning everything once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Provision the broker, then keep running and restore the streams and consumers that it loses. Does not use the database.
    Keep,
    /// Recreate the streams, empty, after the database was restored to an earlier moment: events that the database does not know
    /// are removed, and services publish again what unfinished sagas need. Does not use the database. No `keep` may run
    /// meanwhile: NATS can lose the files of a stream that one program deletes while another creates it.
    Renew,
    /// Print the configuration of the NATS server: its users and their permissions.
    NatsConf {
        /// Give each service an account of its own, so that no reply subject reaches another one. It costs the server 15 to 18 µs
        /// of processor time for each event.
        #[arg(long)]
        accounts: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AppEnv {
    Development,
    Production,
}

#[derive(Args)]
pub struct DatabaseArgs {
    /// The database, as a user who may create roles and schemas in it; `?sslmode=verify-full&sslrootcert=FILE` as for the
    /// services.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    #[arg(default_value = "postgres://postgres@127.0.0.1:5432/postgres")]
    pub database_url: String,
    /// Maximum number of connections of each role; unlimited by default.
    #[arg(long, env = "DB_CONNECTION_LIMIT")]
    pub db_connection_limit: Option<u32>,
    /// How long to wait for the database.
    #[arg(long, env = "DATABASE_STARTUP_LIMIT", value_parser = humantime::parse_duration, default_value = "60s")]
    pub database_startup_limit: Duration,
}

#[derive(Args)]
pub struct BrokerArgs {
    /// Server URL; several may be given, separated by commas.
    #[arg(long, env = "NATS_URL", hide_env_values = true, default_value = "nats://127.0.0.1:4222")]
    pub nats_url: String,
    /// User name; omit it for a server without users.
    #[arg(long, env = "NATS_USER")]
    pub nats_user: Option<String>,
    /// Password of that user.
    #[arg(long, env = "NATS_PASSWORD", hide_env_values = true)]
    pub nats_password: Option<String>,
    /// File of the only CA whose certificate the server may have. With it, the connection is encrypted.
    #[arg(long, env = "NATS_CA_FILE")]
    pub nats_ca_file: Option<PathBuf>,
    /// How long to wait for the broker.
    #[arg(long, env = "NATS_STARTUP_LIMIT", value_parser = humantime::parse_duration, default_value = "60s")]
    pub nats_startup_limit: Duration,
    /// Size of each stream in bytes. Up to half of it holds events that all consumers have acknowledged; a stream full of
    /// unacknowledged events makes its service's events wait in the outbox. The broker reserves this much disk space.
    #[arg(long, env = "STREAM_MAX_BYTES", default_value_t = StreamSettings::default().max_bytes)]
    pub stream_max_bytes: i64,
    /// Maximum age of events in a stream, acknowledged or not. The inbox must keep event ids for longer.
    #[arg(long, env = "STREAM_MAX_AGE", value_parser = humantime::parse_duration, default_value = "3d")]
    pub stream_max_age: Duration,
    /// Copies of each stream; more than 1 needs a cluster.
    #[arg(long, env = "STREAM_REPLICAS", default_value_t = 1)]
    pub stream_replicas: usize,
    /// How long the broker recognises a repeated publication of an event.
    #[arg(long, env = "STREAM_DUPLICATE_WINDOW", value_parser = humantime::parse_duration, default_value = "2m")]
    pub stream_duplicate_window: Duration,
    /// How long a delivery may stay unacknowledged before it is repeated.
    #[arg(long, env = "CONSUMER_ACK_WAIT", value_parser = humantime::parse_duration, default_value = "2500ms")]
    pub consumer_ack_wait: Duration,
    /// Unacknowledged deliveries of one step, over all replicas of its service.
    #[arg(long, env = "CONSUMER_MAX_ACK_PENDING", default_value_t = 4096)]
    pub consumer_max_ack_pending: i64,
}

#[derive(Args)]
pub struct LogArgs {
    /// `json` for machines, `text` for people.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Log filter in the syntax of `tracing`.
    #[arg(long, env = "RUST_LOG", default_value = "info,sqlx=warn,async_nats=warn")]
    pub log_filter: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

impl Config {
    /// The settings of the database; in production also validates the passwords.
    pub fn database_settings(&self) -> anyhow::Result<database::Settings> {
        let given = &self.database;
        if self.app_env == AppEnv::Production {
            self.refuse_public_passwords()?;
        }
        Ok(database::Settings {
            passwords: self.passwords.roles.clone(),
            connection_limit: given.db_connection_limit,
            wait: given.database_startup_limit,
        })
    }

    /// In development every password is the name of its user.
    fn refuse_public_passwords(&self) -> anyhow::Result<()> {
        let UserPasswords { roles, users } = &self.passwords;
        let roles = roles.by_role().map(|(role, password)| ("the role", role, Some(password)));
        let users = users.iter().map(|(user, password)| ("the broker's user", *user, password.as_deref()));
        let (owner, password) = self.database.owner();
        let user = self.broker.nats_user.as_deref();
        let others = [
            ("the database's owner", owner, password),
            ("the broker's user", user.unwrap_or_default(), self.broker.nats_password.as_deref()),
            ("Grafana's user", "admin", self.grafana_admin_password.as_deref()),
        ];
        for (what, user, password) in roles.chain(users).chain(others) {
            if password.is_some_and(|password| password == user || password.is_empty()) {
                bail!("{what} {user} has a development password, which APP_ENV=production refuses");
            }
        }
        Ok(())
    }
}

impl DatabaseArgs {
    /// The user of the URL, and its password if it has one.
    fn owner(&self) -> (&str, Option<&str>) {
        let address = self.database_url.split_once("://").map_or("", |(_, address)| address);
        let owner = address.split_once('@').map_or("", |(owner, _)| owner);
        owner.split_once(':').map_or((owner, None), |(user, password)| (user, Some(password)))
    }

    pub fn connect_options(&self) -> anyhow::Result<PgConnectOptions> {
        PgConnectOptions::from_str(&self.database_url).context("DATABASE_URL is not the URL of a PostgreSQL database")
    }
}

impl BrokerArgs {
    pub fn access(&self) -> Access {
        Access {
            url: self.nats_url.clone(),
            user: self.nats_user.clone(),
            password: self.nats_password.clone().unwrap_or_default(),
            ca_file: self.nats_ca_file.clone(),
        }
    }

    /// The suite's streams and consumers, with these settings.
    pub fn topology(&self) -> Topology {
        let mut topology = broker::topology();
        topology.stream = StreamSettings {
            max_bytes: self.stream_max_bytes,
            max_age: self.stream_max_age,
            replicas: self.stream_replicas,
            duplicate_window: self.stream_duplicate_window,
        };
        let (ack_wait, max_ack_pending) = (self.consumer_ack_wait, self.consumer_max_ack_pending);
        topology.consumer = ConsumerSettings { ack_wait, max_ack_pending };
        topology
    }
}

impl LogArgs {
    /// Starts writing log lines.
    pub fn start(&self) -> anyhow::Result<()> {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log_filter).context("RUST_LOG is not a filter")?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter);
        match self.log_format {
            LogFormat::Json => lines.json().init(),
            LogFormat::Text => lines.with_ansi(std::io::stdout().is_terminal()).init(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Passwords;

    const OWNER: &str = "--database-url=postgres://postgres:p1@postgres:5432/suite";

    /// The arguments of docker-compose.yml, with production passwords.
    fn strong() -> Vec<String> {
        let own = users().flat_map(|user| ["db", "nats"].map(|server| format!("--{user}-{server}-password=strong")));
        let others = [OWNER, "--nats-user=provision", "--nats-password=p6", "--grafana-admin-password=p11"];
        own.chain(others.map(str::to_owned)).collect()
    }

    fn users() -> impl Iterator<Item = &'static str> {
        contracts::SERVICES.map(|service| service.0).into_iter().chain(["auditor"])
    }

    fn validate(environment: &str, changed: &str) -> anyhow::Result<database::Settings> {
        let name = changed.split('=').next().unwrap_or_default();
        let strong = strong().into_iter().filter(|argument| !argument.starts_with(name));
        let arguments = ["provision", "--app-env", environment].map(str::to_owned).into_iter();
        Config::try_parse_from(arguments.chain(strong).chain([changed.to_owned()]))?.database_settings()
    }

    #[test]
    fn production_refuses_every_development_password() {
        let mut public = vec![
            ("--database-url=postgres://postgres:postgres@postgres:5432/suite".to_owned(), "owner postgres".to_owned()),
            ("--nats-password=provision".to_owned(), "user provision".to_owned()),
            ("--grafana-admin-password=admin".to_owned(), "user admin".to_owned()),
        ];
        for (user, (role, _)) in users().zip(Passwords::same_as_roles().by_role()) {
            for password in [role, ""] {
                public.push((format!("--{user}-db-password={password}"), format!("role {role}")));
            }
            for password in [user, ""] {
                public.push((format!("--{user}-nats-password={password}"), format!("user {user}")));
            }
        }
        for (public, named) in public {
            let refused = validate("production", &public).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains(&named), "{public}: {refused:?}");
            assert!(validate("development", &public).is_ok(), "{public}");
        }
    }

    #[test]
    fn production_accepts_own_passwords_and_an_owner_without_one() {
        for accepted in [OWNER, "--database-url=postgres://postgres@127.0.0.1:5432/suite", "--nats-password=p6"] {
            validate("production", accepted).unwrap();
        }
    }
}
