//! What a restore came to.

use std::fmt;

use serde::Serialize;

/// How many failures are shown.
const EXAMPLES: usize = 20;

/// Everything about one run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub rate: u32,
    /// Keys that clients ordered under.
    pub placed: usize,
    /// Orders that the database has in the end.
    pub there: usize,
    /// Sagas that ran at the moment to which it was set back.
    pub under_way: i64,
    /// Payments of after it that order had not acknowledged when it was set back.
    pub unacknowledged: u64,
    /// Orders that the command lists as forgotten.
    pub forgotten: usize,
    /// Those of them whose clients never got an answer.
    pub untold: usize,
    /// Forgotten orders that were accepted so late that they had left no trace outside.
    pub unpublished: usize,
    /// Charges for forgotten orders, and their sum in cents.
    pub charges: usize,
    pub refunded: i64,
    /// Such charges that had been given back before it was set back.
    pub given_back: usize,
    pub cancelled_again: usize,
    /// Facts about products that are forgotten.
    pub products: Vec<String>,
    pub settled_seconds: u64,
    pub failures: Vec<String>,
}

impl Report {
    /// Nothing is shown where too little happened.
    pub(super) fn with_demands(mut self) -> Self {
        let supplies = self.products.iter().filter(|fact| fact.starts_with("StockReplenished")).count();
        if (self.products.len(), supplies) != (1, 1) {
            self.failures.push(format!("one supply was forgotten, and listed are {:?}", self.products));
        }
        for (happened, what) in [
            (self.under_way > 0, "no order was under way at the moment"),
            (self.unacknowledged > 0, "order had acknowledged everything"),
            (self.forgotten > 0, "no order was forgotten"),
            (self.charges > 0, "no charge was forgotten"),
            (self.given_back > 0, "no charge that was given back was forgotten"),
            (self.cancelled_again > 0, "no cancellation was forgotten"),
        ] {
            self.failures.extend((!happened).then(|| what.to_owned()));
        }
        self
    }

    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, rate, placed, there, under_way, unacknowledged, forgotten, untold, .. } = self;
        let Report { charges, refunded, given_back, cancelled_again, settled_seconds, .. } = self;
        writeln!(
            f,
            "seed {seed}  {rate} orders/s  {placed} keys ordered under  {under_way} orders under way at the moment  \
             {unacknowledged} payments not acknowledged"
        )?;
        writeln!(
            f,
            "forgotten {forgotten} orders, {untold} of them never answered  {charges} charges of {refunded} cents given back, \
             {given_back} had been before"
        )?;
        writeln!(f, "cancelled again {cancelled_again}  there {there} orders, all ended after {settled_seconds} s")?;
        self.failures.iter().take(EXAMPLES).try_for_each(|failure| writeln!(f, "FAILED {failure}"))?;
        let verdict = if self.passed() { "passed".to_owned() } else { format!("{} FAILURES", self.failures.len()) };
        writeln!(
            f,
            "restore: {verdict}, {forgotten} forgotten orders listed, {charges} charges given back, {there} orders there"
        )
    }
}
