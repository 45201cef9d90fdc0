//! The orders of a load, determined by one seed, so that a run can be repeated, and the products that they need.

use std::{ops::RangeInclusive, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::index};
use uuid::Uuid;

use super::{
    args::{LoadArgs, Mix},
    read::Read,
};
use crate::suite::{NewOrder, NewProduct, OrderLine, Suite};

/// Products with enough stock.
pub(super) const PLENTY: usize = 20;
/// Products with too little stock.
const SCARCE: usize = 5;
const SCARCE_PREFIX: &str = "LOAD-SCARCE-";
/// More units than any load orders.
const ENOUGH: i64 = 1_000_000;

/// One order of the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    /// The idempotency key; not from the seed, because every run places new orders.
    pub(super) key: Uuid,
    pub(super) order: NewOrder,
    /// When its customer cancels it, counted from the answer to its placement.
    pub(super) cancel_after: Option<Duration>,
    /// Whether the client polls it to its end.
    pub(super) followed: bool,
    /// What its client reads afterwards.
    pub(super) read: Option<Read>,
    /// A good card, enough stock, no cancellation, and no fault injected meanwhile.
    pub(super) has_to_be_confirmed: bool,
}

/// The SKU of a product with enough stock.
fn plenty_sku(n: usize) -> String {
    format!("LOAD-{:02}", n + 1)
}

/// The SKU of a product with too little stock.
fn scarce_sku(n: usize) -> String {
    format!("{SCARCE_PREFIX}{:02}", n + 1)
}

/// Creates or replenishes the products: enough stock of most, and of the scarce ones about half of what is ordered.
pub(super) async fn stock(suite: &Suite, args: &LoadArgs) -> anyhow::Result<()> {
    for n in 0..PLENTY {
        supply(suite, &plenty_sku(n), ENOUGH, 1_000 + 50 * n as i64).await?;
    }
    // Without a known number of orders these products sell out.
    let wanted = args.expected().unwrap_or_default() as f64 * args.mix().scarce / 100.0;
    for n in 0..SCARCE {
        supply(suite, &scarce_sku(n), (wanted / 2.0) as i64 / SCARCE as i64, 1_500).await?;
    }
    Ok(())
}

/// Makes at least so many units available, and waits until order knows the product.
async fn supply(suite: &Suite, sku: &str, units: i64, price: i64) -> anyhow::Result<()> {
    if let Some(product) = suite.product(sku).await?.filter(|product| product.available < units) {
        suite.replenish(sku, units - product.available, "load").await?;
    }
    suite.sell(&NewProduct::of(sku, &format!("Load {sku}"), price, units), Duration::from_secs(20)).await
}

/// The endless sequence of orders of a load.
#[derive(Debug)]
pub(super) struct Orders {
    rng: StdRng,
    /// Of reads and new customers, apart: with or without them a seed places the same orders.
    others: StdRng,
    seed: u64,
    placed: u64,
    mix: Mix,
    lines: RangeInclusive<usize>,
    products: usize,
    followed: f64,
    /// Background of a demonstration, which injects faults.
    ambient: bool,
}

impl Orders {
    pub(super) fn new(args: &LoadArgs, seed: u64) -> Self {
        Orders {
            rng: StdRng::seed_from_u64(seed),
            others: StdRng::seed_from_u64(!seed),
            seed,
            placed: 0,
            mix: args.mix(),
            lines: args.lines.clone(),
            products: usize::from(args.products),
            followed: args.followed(),
            ambient: args.ambient,
        }
    }

    fn customer(&mut self) -> String {
        match self.others.random_bool(self.mix.newcomers / 100.0) {
            true => format!("newcomer-{:x}-{}", self.seed, self.placed),
            false => format!("customer-{}", self.placed % 97),
        }
    }

    /// So many reads for each order that they are their share of both.
    fn read(&mut self) -> Option<Read> {
        let per_order = self.mix.reads / (100.0 - self.mix.reads);
        self.others.random_bool(per_order).then(|| Read::any(&mut self.others))
    }

    fn lines(&mut self) -> Vec<OrderLine> {
        let rng = &mut self.rng;
        let count = rng.random_range(self.lines.clone()).min(self.products);
        let mut lines: Vec<OrderLine> = index::sample(rng, self.products, count)
            .into_iter()
            .map(|product| OrderLine { sku: plenty_sku(product), quantity: rng.random_range(1..=3) })
            .collect();
        if rng.random_bool(self.mix.scarce / 100.0)
            && let Some(line) = lines.first_mut()
        {
            *line = OrderLine { sku: scarce_sku(rng.random_range(0..SCARCE)), quantity: 1 };
        }
        lines
    }
}

impl Iterator for Orders {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        let (lines, customer_id, read) = (self.lines(), self.customer(), self.read());
        let rng = &mut self.rng;
        let card = if rng.random_bool(self.mix.declines / 100.0) { "tok_declined" } else { "tok_visa" };
        // About as long as a saga takes, so that cancellations arrive at every step and after its end.
        let cancelled = rng.random_bool(self.mix.cancels / 100.0);
        let cancel_after = cancelled.then(|| Duration::from_millis(rng.random_range(0..=150)));
        let followed = rng.random_bool(self.followed);
        self.placed += 1;
        let scarce = lines.iter().any(|line| line.sku.starts_with(SCARCE_PREFIX));
        let has_to_be_confirmed = card == "tok_visa" && !scarce && !cancelled && !self.ambient;
        let order = NewOrder { customer_id, lines, payment_method: card.to_owned() };
        Some(Planned { key: Uuid::now_v7(), order, cancel_after, followed, read, has_to_be_confirmed })
    }
}

/// `3` or `1-5`.
pub(super) fn parse_lines(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if 1 <= least && least <= most && most <= PLENTY => Ok(least..=most),
        _ => Err(format!("a number from 1 to {PLENTY}, or two of them such as 1-5")),
    }
}

pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a number from 0 to 100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn orders(arguments: &[&str], seed: u64) -> Vec<Planned> {
        let line = Line::parse_from(["load", "--database-url", ""].iter().chain(arguments));
        Orders::new(&line.args, seed).take(2000).collect()
    }

    fn share(orders: &[Planned], of: impl Fn(&Planned) -> bool) -> f64 {
        orders.iter().filter(|planned| of(planned)).count() as f64 / orders.len() as f64
    }

    #[test]
    fn a_seed_repeats_the_orders_under_new_keys() {
        let [one, two] = [orders(&[], 7), orders(&[], 7)];
        assert!(one.iter().zip(&two).all(|(a, b)| a.order == b.order && a.cancel_after == b.cancel_after));
        assert!(one.iter().zip(&two).all(|(a, b)| a.key != b.key));
        assert!(orders(&[], 8).iter().zip(&two).any(|(a, b)| a.order != b.order));
    }

    #[test]
    fn the_mix_follows_the_options() {
        let orders = orders(&["--declines", "5", "--cancels", "3", "--scarce", "10", "--lines", "2-4"], 1);
        let scarce = |p: &Planned| p.order.lines.iter().any(|l| l.sku.starts_with("LOAD-SCARCE"));
        assert!((0.07..0.13).contains(&share(&orders, scarce)));
        assert!((0.03..0.07).contains(&share(&orders, |p| p.order.payment_method == "tok_declined")));
        assert!((0.01..0.05).contains(&share(&orders, |p| p.cancel_after.is_some())));
        assert!(orders.iter().all(|p| (2..=4).contains(&p.order.lines.len())));
    }

    #[test]
    fn ambient_load_reads_and_has_new_customers() {
        let ambient = orders(&["--ambient"], 1);
        let reads = ambient.iter().filter(|planned| planned.read.is_some()).count() as f64;
        let of_all = reads / (reads + ambient.len() as f64);
        assert!((0.33..0.37).contains(&of_all), "{of_all}");
        for read in [Read::Order, Read::Saga, Read::Product, Read::Stock, Read::OrdersOfCustomer] {
            assert!(share(&ambient, |planned| planned.read == Some(read)) > 0.08, "{read:?}");
        }
        let is_new = |planned: &Planned| planned.order.customer_id.starts_with("newcomer-");
        assert!((0.035..0.065).contains(&share(&ambient, is_new)));
        let new: HashSet<_> = ambient.iter().filter(|planned| is_new(planned)).map(|p| &p.order.customer_id).collect();
        assert_eq!(new.len(), ambient.iter().filter(|planned| is_new(planned)).count(), "each is new once");
        assert!(orders(&[], 1).iter().all(|planned| planned.read.is_none() && !is_new(planned)));
    }

    #[test]
    fn all_orders_can_share_one_product() {
        let orders = orders(&["--products", "1", "--scarce", "0"], 1);
        assert!(orders.iter().all(|p| p.order.lines.len() == 1 && p.order.lines[0].sku == "LOAD-01"));
    }

    #[test]
    fn an_order_names_each_product_once() {
        for planned in orders(&["--scarce", "50"], 3) {
            let mut skus: Vec<&String> = planned.order.lines.iter().map(|l| &l.sku).collect();
            skus.sort();
            skus.dedup();
            assert_eq!(skus.len(), planned.order.lines.len());
        }
    }

    #[test]
    fn lines_are_a_number_or_a_range() {
        assert_eq!(parse_lines("3"), Ok(3..=3));
        assert_eq!(parse_lines("1-5"), Ok(1..=5));
        assert!(["0", "5-1", "1-21", "x", "", "1-"].iter().all(|text| parse_lines(text).is_err()));
    }
}
