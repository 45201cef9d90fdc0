//! What can be set about the order service.

use std::time::Duration;

use bootstrap::BaseArgs;
use clap::Parser;
use participant::ParticipantArgs;

/// Takes orders and sees them to their end.
#[derive(Debug, Clone, Parser)]
#[command(name = "order", version, about, mut_arg("listen", |arg| arg.default_value("127.0.0.1:8081")))]
pub struct Config {
    #[command(flatten)]
    pub base: BaseArgs,
    #[command(flatten)]
    pub participant: ParticipantArgs,
    /// Where inventory's REST API is: the source from which the product view can be rebuilt.
    #[arg(long, env = "INVENTORY_URL", default_value = "http://127.0.0.1:8082")]
    pub inventory_url: String,
    /// How often the product view is compared with inventory, which puts right what no event told of.
    #[arg(long, env = "CATALOGUE_REBUILD_EVERY", default_value = "10m", value_parser = humantime::parse_duration)]
    pub catalogue_rebuild_every: Duration,
    /// How often overdue compensations are looked for.
    #[arg(long, env = "COMPENSATION_CHECK_EVERY", default_value = "5s", value_parser = humantime::parse_duration)]
    pub compensation_check_every: Duration,
    /// No orders are accepted while an event of order has waited for longer than this to be published: answered with 503.
    #[arg(long, env = "PLACEMENT_OUTBOX_AGE", default_value = "30s", value_parser = humantime::parse_duration)]
    pub placement_outbox_age: Duration,
    /// How long finished sagas are kept; after that a confirmed order can no longer be cancelled.
    #[arg(long, env = "SAGA_RETENTION", default_value = "30d", value_parser = humantime::parse_duration)]
    pub saga_retention: Duration,
    /// How long an idempotency key stands for its order.
    #[arg(long, env = "IDEMPOTENCY_RETENTION", default_value = "7d", value_parser = humantime::parse_duration)]
    pub idempotency_retention: Duration,
}
