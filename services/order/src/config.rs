//! The settings of the order service.

use std::time::Duration;

use bootstrap::BaseArgs;
use clap::{ArgAction, Parser};
use participant::ParticipantArgs;

/// Accepts orders, and confirms or cancels them.
#[derive(Debug, Clone, Parser)]
#[command(name = "order", version, about, mut_arg("listen", |arg| arg.default_value("127.0.0.1:8081")))]
pub struct Config {
    #[command(flatten)]
    pub base: BaseArgs,
    #[command(flatten)]
    pub participant: ParticipantArgs,
    /// The URL of inventory's REST API, from which the product view is rebuilt, and for commands of orchestrated sagas.
    #[arg(long, env = "INVENTORY_URL", default_value = "http://127.0.0.1:8082")]
    pub inventory_url: String,
    /// The URL of payment's REST API, for commands of orchestrated sagas.
    #[arg(long, env = "PAYMENT_URL", default_value = "http://127.0.0.1:8083")]
    pub payment_url: String,
    /// Another replica goes on with the orchestrated sagas of one that has not been heard of for this long.
    #[arg(long, env = "COORDINATOR_LEASE", default_value = "5s", value_parser = humantime::parse_duration)]
    pub coordinator_lease: Duration,
    /// How often the product view is compared with inventory, which repairs the loss of events.
    #[arg(long, env = "CATALOGUE_REBUILD_EVERY", default_value = "10m", value_parser = humantime::parse_duration)]
    pub catalogue_rebuild_every: Duration,
    /// Whether only registered customers who are ACTIVE may order. The same in all replicas of order.
    #[arg(long, env = "CUSTOMERS_REQUIRED", action = ArgAction::Set, default_value_t = false)]
    pub customers_required: bool,
    /// How often the summary of orders per customer is refreshed, which reads all orders.
    #[arg(long, env = "CUSTOMER_SUMMARY_EVERY", default_value = "10m", value_parser = humantime::parse_duration)]
    pub customer_summary_every: Duration,
    /// How often overdue compensations are checked.
    #[arg(long, env = "COMPENSATION_CHECK_EVERY", default_value = "5s", value_parser = humantime::parse_duration)]
    pub compensation_check_every: Duration,
    /// Orders are refused with 503 while an event of order has been pending in the outbox for longer than this.
    #[arg(long, env = "PLACEMENT_OUTBOX_AGE", default_value = "30s", value_parser = humantime::parse_duration)]
    pub placement_outbox_age: Duration,
    /// How long finished sagas are kept; afterwards a confirmed order can no longer be cancelled.
    #[arg(long, env = "SAGA_RETENTION", default_value = "30d", value_parser = humantime::parse_duration)]
    pub saga_retention: Duration,
    /// How long an idempotency key is kept.
    #[arg(long, env = "IDEMPOTENCY_RETENTION", default_value = "7d", value_parser = humantime::parse_duration)]
    pub idempotency_retention: Duration,
}
