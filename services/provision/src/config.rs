//! What can be set, by flag or by environment variable; `provision --help` is the reference.

use std::{io::IsTerminal, str::FromStr, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use messaging::topology::{ConsumerSettings, StreamSettings};
use sqlx::postgres::PgConnectOptions;

use crate::{
    broker::{self, Access},
    database::{self, Passwords},
};

/// Makes the database and the broker ready for the services. May be run again at any time.
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
    pub log: LogArgs,
    /// Production refuses passwords that are only fit for development.
    #[arg(long, env = "APP_ENV", value_enum, default_value_t = AppEnv::Development)]
    pub app_env: AppEnv,
}

/// What to do instead of making everything ready once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Make everything ready, then stay and put back the streams and consumers that the broker loses.
    Keep,
    /// Print the configuration of the NATS server: its users and what each of them may do.
    NatsConf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AppEnv {
    Development,
    Production,
}

#[derive(Args)]
pub struct DatabaseArgs {
    /// The database, as a user who may create roles and schemas in it.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    #[arg(default_value = "postgres://postgres@127.0.0.1:5432/postgres")]
    pub database_url: String,
    /// Password of the role `order_service`. In development a role's password defaults to its name.
    #[arg(long, env = "ORDER_DB_PASSWORD", hide_env_values = true, default_value = "order_service")]
    pub order_db_password: String,
    /// Password of the role `inventory_service`.
    #[arg(long, env = "INVENTORY_DB_PASSWORD", hide_env_values = true, default_value = "inventory_service")]
    pub inventory_db_password: String,
    /// Password of the role `payment_service`.
    #[arg(long, env = "PAYMENT_DB_PASSWORD", hide_env_values = true, default_value = "payment_service")]
    pub payment_db_password: String,
    /// Password of the role `auditor`.
    #[arg(long, env = "AUDITOR_DB_PASSWORD", hide_env_values = true, default_value = "auditor")]
    pub auditor_db_password: String,
    /// Connections that each role may hold at a time; without limit when not given.
    #[arg(long, env = "DB_CONNECTION_LIMIT")]
    pub db_connection_limit: Option<u32>,
    /// How long to wait for the database.
    #[arg(long, env = "DATABASE_STARTUP_LIMIT", value_parser = humantime::parse_duration, default_value = "60s")]
    pub database_startup_limit: Duration,
}

#[derive(Args)]
pub struct BrokerArgs {
    /// Server URL; several may be given, separated by commas.
    #[arg(long, env = "NATS_URL", default_value = "nats://127.0.0.1:4222")]
    pub nats_url: String,
    /// User name; not given when the server asks for none.
    #[arg(long, env = "NATS_USER")]
    pub nats_user: Option<String>,
    /// Password of that user.
    #[arg(long, env = "NATS_PASSWORD", hide_env_values = true)]
    pub nats_password: Option<String>,
    /// How long to wait for the broker.
    #[arg(long, env = "NATS_STARTUP_LIMIT", value_parser = humantime::parse_duration, default_value = "60s")]
    pub nats_startup_limit: Duration,
    /// Size of each stream in bytes; a full stream makes its service's events wait in the outbox. The broker
    /// sets this much aside on its disk.
    #[arg(long, env = "STREAM_MAX_BYTES", default_value_t = StreamSettings::default().max_bytes)]
    pub stream_max_bytes: i64,
    /// How long events stay in a stream. The inbox must remember for longer.
    #[arg(long, env = "STREAM_MAX_AGE", value_parser = humantime::parse_duration, default_value = "3d")]
    pub stream_max_age: Duration,
    /// Copies of each stream; more than 1 needs a cluster.
    #[arg(long, env = "STREAM_REPLICAS", default_value_t = 1)]
    pub stream_replicas: usize,
    /// How long the broker recognises an event that is published again.
    #[arg(long, env = "STREAM_DUPLICATE_WINDOW", value_parser = humantime::parse_duration, default_value = "2m")]
    pub stream_duplicate_window: Duration,
    /// How long a delivery may stay unanswered before it is repeated.
    #[arg(long, env = "CONSUMER_ACK_WAIT", value_parser = humantime::parse_duration, default_value = "2500ms")]
    pub consumer_ack_wait: Duration,
    /// Unanswered deliveries of one step, over all replicas of its service.
    #[arg(long, env = "CONSUMER_MAX_ACK_PENDING", default_value_t = 4096)]
    pub consumer_max_ack_pending: i64,
}

#[derive(Args)]
pub struct LogArgs {
    /// `json` for machines, `text` for people.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Which log lines are written, as a `tracing` filter.
    #[arg(long, env = "RUST_LOG", default_value = "info,sqlx=warn,async_nats=warn")]
    pub log_filter: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

impl Config {
    /// What the database shall be like.
    pub fn database_settings(&self) -> anyhow::Result<database::Settings> {
        let given = &self.database;
        let passwords = Passwords {
            order_service: given.order_db_password.clone(),
            inventory_service: given.inventory_db_password.clone(),
            payment_service: given.payment_db_password.clone(),
            auditor: given.auditor_db_password.clone(),
        };
        for (role, password) in passwords.by_role() {
            if self.app_env == AppEnv::Production && (password == role || password.is_empty()) {
                bail!("the role {role} has a password fit for development only, which APP_ENV=production refuses");
            }
        }
        Ok(database::Settings {
            passwords,
            connection_limit: given.db_connection_limit,
            wait: given.database_startup_limit,
        })
    }
}

impl DatabaseArgs {
    /// Where the database is.
    pub fn connect_options(&self) -> anyhow::Result<PgConnectOptions> {
        PgConnectOptions::from_str(&self.database_url).context("DATABASE_URL is not the URL of a PostgreSQL database")
    }
}

impl BrokerArgs {
    /// Where the broker is, and who asks.
    pub fn access(&self) -> Access {
        let user = self.nats_user.clone();
        Access { url: self.nats_url.clone(), user, password: self.nats_password.clone().unwrap_or_default() }
    }

    /// What streams and consumers shall be like.
    pub fn settings(&self) -> broker::Settings {
        broker::Settings {
            stream: StreamSettings {
                max_bytes: self.stream_max_bytes,
                max_age: self.stream_max_age,
                replicas: self.stream_replicas,
                duplicate_window: self.stream_duplicate_window,
            },
            consumer: ConsumerSettings {
                ack_wait: self.consumer_ack_wait,
                max_ack_pending: self.consumer_max_ack_pending,
            },
        }
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
