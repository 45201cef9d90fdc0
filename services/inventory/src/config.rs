//! The settings of the inventory service.

use std::time::Duration;

use bootstrap::BaseArgs;
use clap::{ArgAction, Args, Parser};
use participant::ParticipantArgs;

use crate::domain::MAX_SUPPLY;

/// Owns the catalogue and its stock, and reserves stock for orders.
#[derive(Debug, Clone, Parser)]
#[command(name = "inventory", version, about, mut_arg("listen", |arg| arg.default_value("127.0.0.1:8082")))]
pub struct Config {
    #[command(flatten)]
    pub base: BaseArgs,
    #[command(flatten)]
    pub participant: ParticipantArgs,
    #[command(flatten)]
    pub replenishment: ReplenishmentArgs,
}

/// Automatic replenishment.
#[derive(Debug, Clone, Args)]
pub struct ReplenishmentArgs {
    /// Whether active products that run low are replenished automatically.
    #[arg(long = "replenish-enabled", env = "REPLENISH_ENABLED", default_value_t = true, action = ArgAction::Set)]
    pub enabled: bool,
    /// The reorder point: a product with fewer available units is replenished, unless fewer units than that were ever
    /// supplied: such a product is scarce on purpose.
    #[arg(long = "replenish-point", env = "REPLENISH_POINT", default_value_t = 100,
        value_parser = clap::value_parser!(i64).range(1..=MAX_SUPPLY))]
    pub point: i64,
    /// How many units are supplied at a time.
    #[arg(long = "replenish-quantity", env = "REPLENISH_QUANTITY", default_value_t = 1000,
        value_parser = clap::value_parser!(i64).range(1..=MAX_SUPPLY))]
    pub quantity: i64,
    /// How often stock is checked.
    #[arg(long = "replenish-every", env = "REPLENISH_EVERY", default_value = "10s", value_parser = humantime::parse_duration)]
    pub every: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_apply_and_can_be_set() {
        let parse = |extra: &[&str]| {
            let fixed = ["inventory", "--database-url", "postgres://127.0.0.1/db"];
            Config::try_parse_from(fixed.iter().chain(extra))
                .map(|config| (config.base.http.listen, config.replenishment))
        };
        let (listen, usual) = parse(&[]).expect("defaults");
        assert_eq!(listen.port(), 8082);
        assert_eq!((usual.enabled, usual.point, usual.quantity), (true, 100, 1000));
        assert_eq!(usual.every, Duration::from_secs(10));
        assert!(!parse(&["--replenish-enabled", "false"]).expect("a switch").1.enabled);
        assert!(parse(&["--replenish-quantity", "0"]).is_err());
    }
}
