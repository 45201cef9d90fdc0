//! What can be asked of a load, and what follows from it.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use super::{
    pace::Pace,
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
    /// Open loop: orders a second, whether or not the ones before have been answered; 50 if nothing else is said
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rate: Option<u32>,
    /// The rate grows from nothing within this time
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(super) ramp: Duration,
    /// Closed loop: so many orders are open at any time, a new one is placed when one has ended
    #[arg(long, value_name = "ORDERS", conflicts_with_all = ["rate", "ramp"], requires = "database_url",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) in_flight: Option<u32>,
    /// Background for a demonstration: 3 orders a second until it is interrupted, few of which fail
    #[arg(long, conflicts_with = "in_flight")]
    pub(super) ambient: bool,
    /// Lines of an order: a number, or the least and the most
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
    /// Percent of orders that want a product of which there is too little [default: 10, ambient 2]
    #[arg(long, value_parser = plan::parse_percent)]
    pub(super) scarce: Option<f64>,
    /// How long each order may take from its placement to the end of its saga
    #[arg(long, default_value = "90s", value_parser = humantime::parse_duration)]
    pub(super) settle: Duration,
    /// Percent of orders that the client watches to their end over REST. The others are looked up in the database when
    /// all have been placed, for which it has to be known [default: 100, in a closed loop 1]
    #[arg(long, value_parser = plan::parse_percent)]
    pub(super) follow: Option<f64>,
    /// How many requests for placements may be waiting for an answer; who waits for a turn is late, and that counts
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) connections: u16,
    /// Open a connection for each request
    #[arg(long)]
    pub(super) no_keep_alive: bool,
    /// What is placed in this time at the beginning is not measured
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(super) warm_up: Duration,
    /// Repeats a run: the same orders in the same order
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Print the result as JSON, or write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// The suite's database, as the read-only role `auditor`: its times are the suite's own
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(super) database_url: Option<String>,
    #[command(flatten)]
    pub(super) addresses: Addresses,
}

/// Which orders differ from the plain ones, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mix {
    pub(super) declines: f64,
    pub(super) cancels: f64,
    pub(super) scarce: f64,
}

impl LoadArgs {
    pub(super) fn mix(&self) -> Mix {
        let usual = if self.ambient {
            Mix { declines: 2.0, cancels: 1.0, scarce: 2.0 }
        } else {
            Mix { declines: 5.0, cancels: 3.0, scarce: 10.0 }
        };
        Mix {
            declines: self.declines.unwrap_or(usual.declines),
            cancels: self.cancels.unwrap_or(usual.cancels),
            scarce: self.scarce.unwrap_or(usual.scarce),
        }
    }

    pub(super) fn pace(&self) -> Pace {
        match self.in_flight {
            Some(in_flight) => Pace::Closed { in_flight },
            None => Pace::Open { rate: self.rate.unwrap_or(if self.ambient { 3 } else { 50 }), ramp: self.ramp },
        }
    }

    /// How many orders to place at most.
    pub(super) fn limit(&self) -> u64 {
        let bounded_otherwise = self.time.is_some() || self.ambient;
        self.orders.unwrap_or(if bounded_otherwise { u64::MAX } else { 500 })
    }

    /// How many orders there will be, if that can be told.
    pub(super) fn expected(&self) -> Option<u64> {
        let by_time = match (self.pace(), self.time) {
            (Pace::Open { rate, .. }, Some(time)) => Some((f64::from(rate) * time.as_secs_f64()) as u64),
            _ => None,
        };
        by_time.into_iter().chain((self.limit() < u64::MAX).then_some(self.limit())).min()
    }

    /// The share of orders that the client follows, 0 to 1.
    pub(super) fn followed(&self) -> f64 {
        self.follow.unwrap_or(if self.in_flight.is_some() { 1.0 } else { 100.0 }) / 100.0
    }
}
