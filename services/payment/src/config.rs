//! The settings of the payment service.

use std::time::Duration;

use bootstrap::BaseArgs;
use clap::{Args, Parser};
use participant::ParticipantArgs;

/// Charges each order's card once, and refunds cancelled orders.
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

/// The card processor's address, and the limits of calls to it.
#[derive(Debug, Clone, Args)]
pub struct GatewayArgs {
    /// The card processor's base URL.
    #[arg(long, env = "GATEWAY_URL", default_value = "http://127.0.0.1:8084")]
    pub gateway_url: String,
    /// How long one call may take before its outcome counts as unknown.
    #[arg(long, env = "GATEWAY_TIMEOUT", default_value = "5s", value_parser = humantime::parse_duration)]
    pub gateway_timeout: Duration,
    /// For how long a call with an unknown outcome is retried before the event goes back to the broker. Together with the
    /// last call's timeout it must stay well below the step's time limit.
    #[arg(long, env = "GATEWAY_PATIENCE", default_value = "12s", value_parser = humantime::parse_duration)]
    pub gateway_patience: Duration,
    /// The maximal number of concurrent calls, of all batches together.
    #[arg(long, env = "GATEWAY_CONCURRENCY", default_value_t = 128)]
    pub gateway_concurrency: usize,
    /// How many batches of each step run concurrently.
    #[arg(long, env = "PAYMENT_LANES", default_value_t = 8)]
    pub payment_lanes: usize,
}
