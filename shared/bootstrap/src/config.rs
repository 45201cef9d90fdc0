//! The settings that all services share, one struct per topic, each read from a flag or an environment variable. They are parsed
//! once, in `main`; `--help` is their reference. A service flattens the structs that it needs into its own `clap` struct and may
//! change a default there with `#[command(mut_arg(..))]`.

use std::{convert::Infallible, fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueEnum};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::error::StartError;

/// The token used in development. It is public, hence refused in production.
pub const DEVELOPMENT_ADMIN_TOKEN: &str = "dev-admin-token";

/// The settings of every service.
#[derive(Args, Clone, Debug)]
pub struct BaseArgs {
    /// How requests are accepted.
    #[command(flatten)]
    pub http: HttpArgs,
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// Where the service runs. Production refuses settings that are only fit for development; it is the default where
    /// other machines can reach the service (LISTEN).
    #[arg(long, env = "APP_ENV", value_enum)]
    pub app_env: Option<AppEnv>,
}

/// Where the service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AppEnv {
    /// A developer's machine or a demonstration.
    Development,
    /// Anything that real users reach.
    Production,
}

/// How requests are accepted and limited.
#[derive(Args, Clone, Debug)]
pub struct HttpArgs {
    /// Address and port to listen on.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Bearer token for `/api/admin/*`.
    #[arg(long, env = "ADMIN_TOKEN", hide_env_values = true, default_value = DEVELOPMENT_ADMIN_TOKEN)]
    pub admin_token: Secret,
    /// Open connections at most; further ones wait in the listen queue.
    #[arg(long, env = "HTTP_MAX_CONNECTIONS", default_value_t = 1024)]
    pub max_connections: usize,
    /// API requests in progress at most; further ones are answered 503 with `Retry-After`. Operations and admin
    /// routes are exempt, so that an overloaded service can still be inspected.
    #[arg(long, env = "HTTP_MAX_IN_FLIGHT", default_value_t = 512)]
    pub max_in_flight: usize,
    /// Largest request body, in bytes; a larger one is answered 413.
    #[arg(long, env = "HTTP_BODY_LIMIT", default_value_t = 65_536)]
    pub body_limit: usize,
    /// Time a client has to send its request headers.
    #[arg(long, env = "HTTP_HEADER_READ_TIMEOUT", value_parser = humantime::parse_duration, default_value = "10s")]
    pub header_read_timeout: Duration,
    /// Time a client has to send its request body; a slower one is answered 408.
    #[arg(long, env = "HTTP_BODY_READ_TIMEOUT", value_parser = humantime::parse_duration, default_value = "10s")]
    pub body_read_timeout: Duration,
    /// Time after which a request is answered 503. It must be longer than the longest `Prefer: wait` (30 s).
    #[arg(long, env = "HTTP_REQUEST_TIMEOUT", value_parser = humantime::parse_duration, default_value = "35s")]
    pub request_timeout: Duration,
    /// Time that requests in progress, and then background tasks, have to finish at shutdown.
    #[arg(long, env = "HTTP_DRAIN_TIMEOUT", value_parser = humantime::parse_duration, default_value = "10s")]
    pub drain_timeout: Duration,
}

/// The connection to PostgreSQL, and its timeouts.
#[derive(Args, Clone, Debug)]
pub struct PostgresArgs {
    /// Connection URL, for example `postgres://order_service:secret@127.0.0.1:5432/shop`. With
    /// `?sslmode=verify-full&sslrootcert=FILE` the connection is encrypted, and the server has a certificate of the CA in FILE;
    /// the CAs of this machine, or of SSL_CERT_FILE, are trusted, too.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret,
    /// Connections for HTTP handlers except those that list or count. The service is ready only when these and those below
    /// are all open.
    #[arg(long, env = "DATABASE_HTTP_POOL", default_value_t = 8)]
    pub http_pool: u32,
    /// Connections for HTTP handlers that list or count; the server cancels their statements after two seconds at most.
    #[arg(long, env = "DATABASE_READ_POOL", default_value_t = 2)]
    pub read_pool: u32,
    /// Connections for consumers and housekeeping.
    #[arg(long, env = "DATABASE_WORK_POOL", default_value_t = 8)]
    pub work_pool: u32,
    /// Connections for the outbox relay; the active one keeps one of them.
    #[arg(long, env = "DATABASE_RELAY_POOL", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..))]
    pub relay_pool: u32,
    /// The server cancels a statement that runs longer; ten seconds at most, because clients close a connection without a
    /// response for fifteen.
    #[arg(long, env = "DATABASE_STATEMENT_TIMEOUT", value_parser = statement_timeout, default_value = "10s")]
    pub statement_timeout: Duration,
    /// The server refuses a statement that waits longer for a lock.
    #[arg(long, env = "DATABASE_LOCK_TIMEOUT", value_parser = humantime::parse_duration, default_value = "2s")]
    pub lock_timeout: Duration,
    /// Time an HTTP handler waits for a free connection before it is answered 503.
    #[arg(long, env = "DATABASE_ACQUIRE_TIMEOUT", value_parser = humantime::parse_duration, default_value = "1s")]
    pub acquire_timeout: Duration,
    /// Time to wait for the database at start, until all connections are open; then the service exits.
    #[arg(long, env = "DATABASE_STARTUP_LIMIT", value_parser = humantime::parse_duration, default_value = "60s")]
    pub database_startup_limit: Duration,
    /// Start although the server may lose committed transactions (`fsync`, `full_page_writes` or
    /// `synchronous_commit` off, or the last `local` with a standby). For tests only.
    #[arg(long, env = "ALLOW_UNSAFE_DURABILITY", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub allow_unsafe_durability: bool,
}

/// The connection to NATS, and its timeout.
#[derive(Args, Clone, Debug)]
pub struct NatsArgs {
    /// Server URL; several may be given, separated by commas.
    #[arg(long, env = "NATS_URL", hide_env_values = true, default_value = "nats://127.0.0.1:4222")]
    pub nats_url: String,
    /// User name; its permissions are limited to the service's own subjects.
    #[arg(long, env = "NATS_USER")]
    pub nats_user: Option<String>,
    /// Password of that user.
    #[arg(long, env = "NATS_PASSWORD", hide_env_values = true)]
    pub nats_password: Option<Secret>,
    /// File of the only CA whose certificate the server may have. With it, the connection is encrypted.
    #[arg(long, env = "NATS_CA_FILE")]
    pub nats_ca_file: Option<PathBuf>,
    /// Time to wait for the broker at start; then the service exits.
    #[arg(long, env = "NATS_STARTUP_LIMIT", value_parser = humantime::parse_duration, default_value = "60s")]
    pub nats_startup_limit: Duration,
}

/// Logs and traces.
#[derive(Args, Clone, Debug)]
pub struct TelemetryArgs {
    /// `json` for machines, `text` for people.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Which log lines are written, as a `tracing` filter, for example `info,messaging=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log_filter: String,
    /// Base URL of an OTLP/HTTP collector, for example `http://127.0.0.1:4318`. Without it spans are not exported.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// Share of requests to trace, 0.0 to 1.0, regardless of the sampling flag of their clients.
    #[arg(long, env = "TRACE_SAMPLE_RATIO", default_value_t = 1.0)]
    pub trace_sample_ratio: f64,
}

/// The shape of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// One readable line per event.
    Text,
}

/// A value that must not be printed: its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl BaseArgs {
    /// Where the service runs: the setting, or by the listening address.
    pub fn env(&self) -> AppEnv {
        let by_address = if self.http.listen.ip().is_loopback() { AppEnv::Development } else { AppEnv::Production };
        self.app_env.unwrap_or(by_address)
    }

    /// Refuses settings that contradict each other or the environment.
    ///
    /// # Errors
    /// [`StartError::Configuration`] with a sentence that names the setting.
    pub fn check(&self) -> Result<(), StartError> {
        let token = self.http.admin_token.expose();
        if token.is_empty() {
            return Err(StartError::Configuration("ADMIN_TOKEN must not be empty".to_owned()));
        }
        if self.env() == AppEnv::Production && token == DEVELOPMENT_ADMIN_TOKEN {
            return Err(StartError::Configuration(
                "ADMIN_TOKEN is the public development token, which is refused with APP_ENV=production, or without \
                 APP_ENV where other machines can reach the service (LISTEN): set another one"
                    .to_owned(),
            ));
        }
        if !(0.0..=1.0).contains(&self.telemetry.trace_sample_ratio) {
            return Err(StartError::Configuration("TRACE_SAMPLE_RATIO must lie between 0.0 and 1.0".to_owned()));
        }
        Ok(())
    }
}

impl Secret {
    /// Wraps a value that must not be printed.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether this is the value that somebody presents. Compares digests, because comparing the values would reveal the length.
    pub fn matches(&self, given: &[u8]) -> bool {
        Sha256::digest(given).ct_eq(&Sha256::digest(self.0.as_bytes())).into()
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(value: &str) -> Result<Self, Infallible> {
        Ok(Self::new(value))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Not zero, which PostgreSQL interprets as no limit, and below the callers' timeouts.
fn statement_timeout(text: &str) -> Result<Duration, String> {
    let limit = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match limit.as_millis() {
        1..=10_000 => Ok(limit),
        _ => Err("it must lie between 1ms and 10s".to_owned()),
    }
}

/// A topic's settings from these flags, for tests.
#[cfg(test)]
pub(crate) fn parsed<A: Args>(flags: &[&str]) -> A {
    let command = A::augment_args(clap::Command::new("service"));
    let matches = command.get_matches_from(["service"].iter().chain(flags));
    A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:8081")))]
    struct ServiceArgs {
        #[command(flatten)]
        base: BaseArgs,
        #[command(flatten)]
        postgres: PostgresArgs,
        #[command(flatten)]
        nats: NatsArgs,
    }

    fn parse(extra: &[&str]) -> ServiceArgs {
        let fixed = ["service", "--database-url", "postgres://u:secret@127.0.0.1/db"];
        ServiceArgs::try_parse_from(fixed.iter().chain(extra)).unwrap()
    }

    #[test]
    fn the_defaults_work_and_a_service_may_change_one() {
        let args = parse(&[]);
        assert!(args.base.check().is_ok());
        assert_eq!(args.base.http.listen.port(), 8081);
        assert!(args.base.http.request_timeout > Duration::from_secs(30));
        assert!(!args.postgres.allow_unsafe_durability);
        assert_eq!(args.nats.nats_startup_limit, Duration::from_secs(60));
    }

    #[test]
    fn a_statement_timeout_is_at_most_ten_seconds() {
        let at_most = |text: &str| statement_timeout(text).map(|limit| limit.as_secs());
        assert_eq!((at_most("10s"), at_most("1ms")), (Ok(10), Ok(0)));
        assert!(at_most("0s").is_err() && at_most("10001ms").is_err() && at_most("soon").is_err());
    }

    #[test]
    fn production_refuses_the_development_admin_token() {
        let refused = parse(&["--app-env", "production"]).base.check();
        assert!(refused.unwrap_err().to_string().contains("ADMIN_TOKEN"));
        let args = parse(&["--app-env", "production", "--admin-token", "another"]);
        assert!(args.base.check().is_ok());
    }

    #[test]
    fn the_development_admin_token_is_refused_where_other_machines_reach_it() {
        for (listen, accepted) in [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("[::]:1", false)] {
            assert_eq!(parse(&["--listen", listen]).base.check().is_ok(), accepted, "{listen}");
            assert!(parse(&["--listen", listen, "--app-env", "development"]).base.check().is_ok(), "{listen}");
            assert!(parse(&["--listen", listen, "--admin-token", "another"]).base.check().is_ok(), "{listen}");
        }
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let args = parse(&["--nats-password", "hunter2"]);
        let printed = format!("{:?}{:?}{:?}", args.base, args.postgres, args.nats);
        assert!(!printed.contains("secret@") && !printed.contains("hunter2"));
    }
}
