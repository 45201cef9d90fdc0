//! What can be set about the payment service.

use std::time::Duration;

use bootstrap::BaseArgs;
use clap::{Args, Parser};
use participant::ParticipantArgs;

/// Charges cards once, and gives back what a cancelled order was charged.
#[derive(Debug, Clone, Parser)]
#[command(name = "payment", version, about, mut_arg("listen", |arg| arg.default_value("127.0.0.1:8083")))]
pub struct Config {
    #[command(flatten)]
    pub base: BaseArgs,
    #[command(flatten)]
    pub participant: ParticipantArgs,
    #[command(flatten)]
    pub gateway: GatewayArgs,
}

/// Where the card processor is, and how it is asked.
#[derive(Debug, Clone, Args)]
pub struct GatewayArgs {
    /// The card processor's base URL.
    #[arg(long, env = "GATEWAY_URL", default_value = "http://127.0.0.1:8084")]
    pub gateway_url: String,
    /// How long one call may take before its outcome counts as unknown.
    #[arg(long, env = "GATEWAY_TIMEOUT", default_value = "5s", value_parser = humantime::parse_duration)]
    pub gateway_timeout: Duration,
    /// For how long an unknown outcome is asked for again before the event goes back to the broker. With the
    /// last call's timeout it must stay well below the step's time limit.
    #[arg(long, env = "GATEWAY_PATIENCE", default_value = "12s", value_parser = humantime::parse_duration)]
    pub gateway_patience: Duration,
    /// Calls in progress at most, of all batches together.
    #[arg(long, env = "GATEWAY_CONCURRENCY", default_value_t = 128)]
    pub gateway_concurrency: usize,
    /// How many batches of each step may wait for the card processor at the same time.
    #[arg(long, env = "PAYMENT_LANES", default_value_t = 8)]
    pub payment_lanes: usize,
}
