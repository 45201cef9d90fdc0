//! The generated orders, all drawn from one seed: products by a Zipf distribution, some of them scarce, some cards that are
//! refused, some cancellations.

use std::time::Duration;

use console::suite::{NewOrder, OrderLine};
use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

use crate::history::Conduct;

/// The number of products with ample stock.
pub const PRODUCTS: usize = 40;
/// The number of products with scarce stock.
pub const SCARCE: usize = 4;
/// The exponent of the Zipf distribution over products.
const ZIPF: f64 = 1.1;

/// The SKU of a product with ample stock.
pub fn plenty_sku(n: usize) -> String {
    format!("PLENTY-{:02}", n + 1)
}

/// The SKU of a product with scarce stock.
pub fn scarce_sku(n: usize) -> String {
    format!("SCARCE-{:02}", n + 1)
}

/// One order to place, and how.
#[derive(Debug, Clone)]
pub struct PlannedOrder {
    pub key: String,
    pub order: NewOrder,
    /// Whether a coordinator drives its saga.
    pub orchestrated: bool,
    pub conduct: Conduct,
    /// When the first request is aborted, for conducts that abort.
    pub hangs_up_after: Duration,
    /// The time from the answer to the cancellation.
    pub cancels_after: Option<Duration>,
    /// The replica of the first request.
    pub first_replica: usize,
}

impl PlannedOrder {
    /// Whether only an outage can excuse that the order is not confirmed.
    pub fn is_good(&self) -> bool {
        let plenty = self.order.lines.iter().all(|line| line.sku.starts_with("PLENTY"));
        let stays = self.cancels_after.is_none() && self.conduct.insists();
        self.order.payment_method == "tok_visa" && plenty && stays
    }
}

/// An endless sequence of orders.
#[derive(Debug)]
pub(super) struct OrderGenerator {
    rng: StdRng,
    /// Cumulative probabilities of the products; the last is 1.
    popularity: Vec<f64>,
}

impl OrderGenerator {
    pub(super) fn new(seed: u64) -> Self {
        let weights: Vec<f64> = (1..=PRODUCTS).map(|rank| (rank as f64).powf(-ZIPF)).collect();
        let sum: f64 = weights.iter().sum();
        let mut below = 0.0;
        let popularity = weights.iter().map(|weight| {
            below += weight / sum;
            below
        });
        OrderGenerator { rng: StdRng::seed_from_u64(seed), popularity: popularity.collect() }
    }

    /// The next order; unruly clients mostly abort or double their requests.
    pub(super) fn next(&mut self, unruly: bool) -> PlannedOrder {
        let conduct = self.conduct(unruly);
        let rng = &mut self.rng;
        let payment_method = match rng.random_range(0..100) {
            0..4 => "tok_declined",
            4..6 => "tok_insufficient_funds",
            6..9 => "tok_flaky",
            9..11 => "tok_unknown_outcome",
            _ => "tok_visa",
        };
        let customer_id = format!("customer-{}", rng.random_range(0..500));
        let cancels_after = rng.random_bool(0.06).then(|| Duration::from_millis(rng.random_range(0..400)));
        let hangs_up_after = Duration::from_millis(rng.random_range(0..60));
        let first_replica = rng.random_range(0..2);
        let orchestrated = rng.random_bool(0.1);
        let unheard_of = || vec![OrderLine { sku: "UNHEARD-OF".to_owned(), quantity: 1 }];
        let lines = if conduct == Conduct::Errs { unheard_of() } else { self.lines() };
        PlannedOrder {
            // Not from the seed, so that every run places new orders.
            key: Uuid::now_v7().to_string(),
            order: NewOrder { customer_id, lines, payment_method: payment_method.to_owned() },
            orchestrated,
            conduct,
            hangs_up_after,
            cancels_after,
            first_replica,
        }
    }

    fn conduct(&mut self, unruly: bool) -> Conduct {
        match (unruly, self.rng.random_range(0..100)) {
            (false, 0..2) | (true, 0..30) => Conduct::HangsUp,
            (false, 2..3) | (true, 30..50) => Conduct::WalksAway,
            (false, 3..6) | (true, 50..85) => Conduct::Doubles,
            (false, 6..8) => Conduct::Errs,
            _ => Conduct::Insists,
        }
    }

    fn lines(&mut self) -> Vec<OrderLine> {
        let count = self.rng.random_range(1..=3);
        let mut skus: Vec<String> = (0..count).map(|_| self.product()).collect();
        if self.rng.random_bool(0.04) {
            skus.push(scarce_sku(self.rng.random_range(0..SCARCE)));
        }
        skus.sort();
        skus.dedup();
        skus.into_iter().map(|sku| OrderLine { sku, quantity: self.rng.random_range(1..=3) }).collect()
    }

    fn product(&mut self) -> String {
        let draw: f64 = self.rng.random();
        plenty_sku(self.popularity.partition_point(|below| *below < draw).min(PRODUCTS - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_orders_under_new_keys() {
        let [mut one, mut two] = [OrderGenerator::new(7), OrderGenerator::new(7)];
        for _ in 0..500 {
            let (a, b) = (one.next(false), two.next(false));
            assert_eq!((&a.order, a.conduct, a.cancels_after), (&b.order, b.conduct, b.cancels_after));
            assert_ne!(a.key, b.key);
        }
    }

    #[test]
    fn the_first_product_is_most_popular_and_every_one_is_ordered() {
        let mut generator = OrderGenerator::new(1);
        let mut planned = [0; PRODUCTS];
        for _ in 0..20_000 {
            let sku = generator.product();
            planned[(0..PRODUCTS).position(|n| plenty_sku(n) == sku).expect("a known product")] += 1;
        }
        assert!(planned[0] > 3 * planned[4] && planned.iter().all(|times| *times > 0), "{planned:?}");
    }
}
