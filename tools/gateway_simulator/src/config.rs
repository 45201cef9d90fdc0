//! The simulator's settings; `--help` is their reference.

use std::{path::PathBuf, time::Duration};

use bootstrap::BaseArgs;
use clap::{ArgAction, Parser};

/// Simulates the card processor: an HTTP server with test cards, durable charges and injectable faults.
#[derive(Parser, Clone, Debug)]
#[command(version, mut_arg("listen", |arg| arg.default_value("127.0.0.1:8084")))]
// A reconciliation names up to about 400,000 keys.
#[command(mut_arg("body_limit", |arg| arg.default_value("16777216")))]
pub struct Config {
    #[command(flatten)]
    pub base: BaseArgs,
    /// The file of all charges, refunds, declines and voids; created when missing.
    #[arg(long, env = "GATEWAY_JOURNAL", default_value = ".run/gateway.journal")]
    pub journal: PathBuf,
    /// Wait for the disk before answering. With `false` charges survive a crash of this process but not of the
    /// machine; for tests and benchmarks.
    #[arg(long, env = "GATEWAY_FSYNC", action = ArgAction::Set, default_value_t = true)]
    pub fsync: bool,
    /// How long `tok_slow` takes.
    #[arg(long, env = "GATEWAY_SLOW_ANSWER", value_parser = humantime::parse_duration, default_value = "8s")]
    pub slow_answer: Duration,
}

impl Config {
    /// For tests that run the simulator in their own process: a free port of 127.0.0.1, no fsync, other settings by default.
    pub fn in_process(journal: impl Into<PathBuf>) -> Self {
        let defaults = Self::parse_from(["gateway_simulator", "--listen", "127.0.0.1:0", "--fsync", "false"]);
        Self { journal: journal.into(), ..defaults }
    }
}
