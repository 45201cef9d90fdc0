//! The report of a restore.

use std::fmt;

use reports::{shortened, write_failures};
use serde::Serialize;

/// How many failures are shown.
const EXAMPLES: usize = 20;

/// Everything about one run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub rate: u32,
    /// Idempotency keys that clients used.
    pub placed: usize,
    /// Orders in the database at the end.
    pub there: usize,
    /// Running sagas at the time of the backup.
    pub under_way: i64,
    /// Payments after the backup that order had not acknowledged at the restore.
    pub unacknowledged: u64,
    /// Orders that the command lists as forgotten.
    pub forgotten: usize,
    /// Those of them whose clients got no answer.
    pub untold: usize,
    /// Forgotten orders that were accepted too late to leave a trace outside of the database.
    pub unpublished: usize,
    /// Charges for forgotten orders, and their sum in cents.
    pub charges: usize,
    pub refunded: i64,
    /// Such charges that had been refunded before the restore.
    pub given_back: usize,
    pub cancelled_again: usize,
    /// Lost facts about products.
    pub products: Vec<String>,
    pub settled_seconds: u64,
    pub failures: Vec<String>,
}

impl Report {
    /// Adds failures where too little happened for a proof.
    pub(super) fn with_demands(mut self) -> Self {
        let supplies = self.products.iter().filter(|fact| fact.starts_with("StockReplenished")).count();
        if (self.products.len(), supplies) != (1, 1) {
            self.failures.push(format!("one supply was forgotten, and listed are {:?}", self.products));
        }
        for (happened, what) in [
            (self.under_way > 0, "no order was in flight at the backup"),
            (self.unacknowledged > 0, "order had acknowledged everything"),
            (self.forgotten > 0, "no order was forgotten"),
            (self.charges > 0, "no charge was forgotten"),
            (self.given_back > 0, "no charge that was given back was forgotten"),
            (self.cancelled_again > 0, "no cancellation was forgotten"),
            (self.unpublished < self.forgotten, "most orders were forgotten without a trace"),
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
        let Report { charges, refunded, given_back, cancelled_again, settled_seconds, unpublished, .. } = self;
        writeln!(
            f,
            "seed {seed}  {rate} orders/s  {placed} keys ordered under  {under_way} orders under way at the moment  \
             {unacknowledged} payments not acknowledged"
        )?;
        writeln!(
            f,
            "forgotten {forgotten} orders, {untold} of them never answered; {unpublished} more without a trace  {charges} charges \
             of {refunded} cents refunded, {given_back} before the restore"
        )?;
        writeln!(f, "cancelled again {cancelled_again}  there {there} orders, all ended after {settled_seconds} s")?;
        let failures: Vec<String> = shortened(&self.failures, EXAMPLES, self.failures.len()).collect();
        let verdict = write_failures(f, &failures)?;
        writeln!(
            f,
            "restore: {verdict}, {forgotten} forgotten orders listed, {charges} charges given back, {there} orders there"
        )
    }
}
