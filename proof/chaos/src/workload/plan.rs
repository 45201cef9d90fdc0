//! Which orders clients want: all drawn from one seed. A few products are wanted by most (Zipf), some are scarce, some
//! cards are refused, some customers change their minds.

use std::time::Duration;

use console::suite::{NewOrder, OrderLine};
use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

use crate::history::Conduct;

/// Products of which there is always enough.
pub const PRODUCTS: usize = 40;
/// Products of which there is too little.
pub const SCARCE: usize = 4;
/// The exponent of the Zipf distribution over products.
const ZIPF: f64 = 1.1;

/// The SKU of a product of which there is enough.
pub fn plenty_sku(n: usize) -> String {
    format!("PLENTY-{:02}", n + 1)
}

/// The SKU of a product of which there is too little.
pub fn scarce_sku(n: usize) -> String {
    format!("SCARCE-{:02}", n + 1)
}

/// One order that a client wants.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub key: String,
    pub order: NewOrder,
    pub conduct: Conduct,
    /// When the first request is cut off, for those who hang up.
    pub hangs_up_after: Duration,
    /// When the customer cancels, counted from the answer.
    pub cancels_after: Option<Duration>,
    /// Which replica is asked first.
    pub first_replica: usize,
}

impl Wanted {
    /// Whether nothing but an outage may keep the order from being confirmed.
    pub fn has_to_be_confirmed(&self) -> bool {
        let plenty = self.order.lines.iter().all(|line| line.sku.starts_with("PLENTY"));
        self.order.payment_method == "tok_visa" && plenty && self.cancels_after.is_none() && self.conduct.insists()
    }
}

/// An endless sequence of orders.
#[derive(Debug)]
pub struct Wishes {
    rng: StdRng,
    /// Cumulative, the last is 1.
    popularity: Vec<f64>,
}

impl Wishes {
    pub fn new(seed: u64) -> Self {
        let weights: Vec<f64> = (1..=PRODUCTS).map(|rank| (rank as f64).powf(-ZIPF)).collect();
        let sum: f64 = weights.iter().sum();
        let mut below = 0.0;
        let popularity = weights.iter().map(|weight| {
            below += weight / sum;
            below
        });
        Wishes { rng: StdRng::seed_from_u64(seed), popularity: popularity.collect() }
    }

    /// The next order; when clients are unruly, most hang up or double their requests.
    pub fn next(&mut self, unruly: bool) -> Wanted {
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
        let unheard_of = || vec![OrderLine { sku: "UNHEARD-OF".to_owned(), quantity: 1 }];
        let lines = if conduct == Conduct::Errs { unheard_of() } else { self.lines() };
        Wanted {
            // Not from the seed: every run places new orders.
            key: Uuid::now_v7().to_string(),
            order: NewOrder { customer_id, lines, payment_method: payment_method.to_owned() },
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
        let [mut one, mut two] = [Wishes::new(7), Wishes::new(7)];
        for _ in 0..500 {
            let (a, b) = (one.next(false), two.next(false));
            assert_eq!((&a.order, a.conduct, a.cancels_after), (&b.order, b.conduct, b.cancels_after));
            assert_ne!(a.key, b.key);
        }
    }

    #[test]
    fn the_first_product_is_wanted_most_and_every_product_by_somebody() {
        let mut wishes = Wishes::new(1);
        let mut wanted = [0; PRODUCTS];
        for _ in 0..20_000 {
            let sku = wishes.product();
            wanted[(0..PRODUCTS).position(|n| plenty_sku(n) == sku).expect("a known product")] += 1;
        }
        assert!(wanted[0] > 3 * wanted[4] && wanted.iter().all(|times| *times > 0), "{wanted:?}");
    }
}
