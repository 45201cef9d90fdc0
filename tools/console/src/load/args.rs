//! The options of a load, and what follows from them.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use super::{
    arrivals::ArrivalMode,
    plan::{self, PLENTY},
};
use crate::suite::Addresses;

/// `console load`.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadArgs {
    /// How many orders to place; 500, if neither this nor a time is given
    #[arg(long)]
    pub(super) orders: Option<u64>,
    /// For how long to place orders
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(super) time: Option<Duration>,
    /// Open loop: orders a second, whether or not earlier ones have been answered; 50 by default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rate: Option<u32>,
    /// The rate grows from nothing within this time
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(super) ramp: Duration,
    /// Closed loop: this many orders are open at any time; a new one is placed when one has ended
    #[arg(long, value_name = "ORDERS", conflicts_with_all = ["rate", "ramp"],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) in_flight: Option<u32>,
    /// Background load for a demonstration: 3 orders a second until interrupted, few of which fail; 35 % of all requests read
    #[arg(long, conflicts_with = "in_flight")]
    pub(super) ambient: bool,
    /// Have a coordinator drive the sagas of the orders; each is answered at its end, so open as many connections as orders
    #[arg(long)]
    pub(super) orchestrated: bool,
    /// Lines of an order: a number, or the minimum and the maximum
    #[arg(long, default_value = "1-5", value_parser = plan::parse_lines)]
    pub(super) lines: RangeInclusive<usize>,
    /// Among how many products to choose
    #[arg(long, default_value_t = PLENTY as u8, value_parser = clap::value_parser!(u8).range(1..=PLENTY as i64))]
    pub(super) products: u8,
    /// Percent of orders whose card is declined [default: 5, ambient 2]
    #[arg(long, value_parser = plan::parse_percent)]
    pub(super) declines: Option<f64>,
    /// Percent of orders that their customer cancels while they are being fulfilled [default: 3, ambient 1]
    #[arg(long, value_parser = plan::parse_percent)]
    pub(super) cancels: Option<f64>,
    /// Percent of orders for a product with too little stock [default: 10, ambient 2]
    #[arg(long, value_parser = plan::parse_percent)]
    pub(super) scarce: Option<f64>,
    /// How long each order may take from its placement to the end of its saga
    #[arg(long, default_value = "90s", value_parser = humantime::parse_duration)]
    pub(super) settle: Duration,
    /// Percent of orders that the client polls to their end over REST; at the end all are looked up in the database
    /// [default: 100, in a closed loop 1]
    #[arg(long, value_parser = plan::parse_percent)]
    pub(super) follow: Option<f64>,
    /// How many placements may wait for an answer at a time; the wait for a free connection counts as latency
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) connections: u16,
    /// Open a connection for each request
    #[arg(long)]
    pub(super) no_keep_alive: bool,
    /// Orders placed in this time at the beginning are not measured
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(super) warm_up: Duration,
    /// Repeats a run: the same orders in the same order
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Print the result as JSON, or write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// The suite's database, as the read-only role `auditor`: how and when orders ended, by the suite's clock
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(super) database_url: String,
    #[command(flatten)]
    pub(super) addresses: Addresses,
}

/// The percentages of orders that do not simply succeed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mix {
    pub(super) declines: f64,
    pub(super) cancels: f64,
    pub(super) scarce: f64,
    /// Of all requests, how many read.
    pub(super) reads: f64,
    /// How many orders are a new customer's; the others are those of regular ones.
    pub(super) newcomers: f64,
}

impl LoadArgs {
    pub(super) fn mix(&self) -> Mix {
        let defaults = if self.ambient {
            Mix { declines: 2.0, cancels: 1.0, scarce: 2.0, reads: 35.0, newcomers: 5.0 }
        } else {
            Mix { declines: 5.0, cancels: 3.0, scarce: 10.0, reads: 0.0, newcomers: 0.0 }
        };
        Mix {
            declines: self.declines.unwrap_or(defaults.declines),
            cancels: self.cancels.unwrap_or(defaults.cancels),
            scarce: self.scarce.unwrap_or(defaults.scarce),
            ..defaults
        }
    }

    pub(super) fn arrivals(&self) -> ArrivalMode {
        match self.in_flight {
            Some(in_flight) => ArrivalMode::Closed { in_flight },
            None => ArrivalMode::Open { rate: self.rate.unwrap_or(if self.ambient { 3 } else { 50 }), ramp: self.ramp },
        }
    }

    /// How many orders to place at most.
    pub(super) fn limit(&self) -> u64 {
        let bounded_otherwise = self.time.is_some() || self.ambient;
        self.orders.unwrap_or(if bounded_otherwise { u64::MAX } else { 500 })
    }

    /// How many orders there will be; `None` if unknown.
    pub(super) fn expected(&self) -> Option<u64> {
        let by_time = match (self.arrivals(), self.time) {
            (ArrivalMode::Open { rate, .. }, Some(time)) => Some((f64::from(rate) * time.as_secs_f64()) as u64),
            _ => None,
        };
        by_time.into_iter().chain((self.limit() < u64::MAX).then_some(self.limit())).min()
    }

    pub(super) fn followed(&self) -> f64 {
        self.follow.unwrap_or(if self.in_flight.is_some() { 1.0 } else { 100.0 }) / 100.0
    }
}
