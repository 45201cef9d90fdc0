//! The ledger as somebody reads it who keeps books of their own: sums without the keys they name and without what has
//! changed since they last looked, all as of one position. What is left has not moved in between, so it can be compared
//! with books that were read in between.

use std::collections::{BTreeMap, HashSet};

use super::{ChargeAnswer, Ledger, Outcome, Totals};
use crate::charge::{Currency, IdempotencyKey};

/// What to compare.
#[derive(Debug, Default)]
pub struct Reconciliation {
    /// A position that was told before: keys that have changed since are listed, and left out of the sums.
    pub since: Option<u64>,
    /// Keys that are left out of the sums.
    pub without: Vec<IdempotencyKey>,
    /// Keys whose outcomes are listed.
    pub keys: Vec<IdempotencyKey>,
}

/// The ledger as of one position.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    /// How many entries the ledger has.
    pub position: u64,
    pub totals: Vec<(Currency, Totals)>,
    /// What has changed since, as it is now.
    pub changed: Vec<ChargeAnswer>,
    /// What became of the keys that were asked for, without those that were never seen.
    pub outcomes: Vec<ChargeAnswer>,
}

impl Ledger {
    /// `None` when the ledger has not come that far.
    pub fn reconcile(&self, asked: &Reconciliation) -> Option<Statement> {
        let since = usize::try_from(asked.since.unwrap_or(self.position())).ok()?;
        let changed: HashSet<&IdempotencyKey> = self.history.get(since..)?.iter().collect();
        let left_out: HashSet<&IdempotencyKey> = changed.iter().copied().chain(&asked.without).collect();
        let outcomes =
            |keys: &mut dyn Iterator<Item = &IdempotencyKey>| keys.filter_map(|key| self.outcome(key)).collect();
        Some(Statement {
            position: self.position(),
            totals: self.totals_without(left_out),
            changed: outcomes(&mut changed.into_iter()),
            outcomes: outcomes(&mut asked.keys.iter()),
        })
    }

    fn totals_without(&self, left_out: HashSet<&IdempotencyKey>) -> Vec<(Currency, Totals)> {
        let mut totals: BTreeMap<Currency, Totals> = self.totals().collect();
        for outcome in left_out.into_iter().filter_map(|key| self.outcomes.get(key)) {
            match outcome {
                Outcome::Charged { charge_id, .. } => {
                    let charge = &self.charges[charge_id];
                    let sums = totals.entry(charge.currency).or_default();
                    sums.charged -= charge.amount;
                    sums.charges -= 1;
                    if charge.refunded {
                        sums.refunded -= charge.amount;
                        sums.refunds -= 1;
                    }
                }
                Outcome::Declined { decline, .. } => {
                    if let Some(currency) = decline.currency {
                        totals.entry(currency).or_default().declines -= 1;
                    }
                }
                Outcome::Voided => {}
            }
        }
        totals.into_iter().collect()
    }
}
