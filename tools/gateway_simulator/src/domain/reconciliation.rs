//! The ledger for a comparison with another ledger: sums without the given keys and without charges that changed since a given
//! position. The rest has not changed since that position, so it can be compared with a ledger that was read in between.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Captured, ChargeAnswer, CurrencyTotals, Ledger, Outcome, listed};
use crate::charge::IdempotencyKey;

/// What to compare; every field is optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = ReconciliationBody)]
pub struct Reconciliation {
    /// An earlier position: charges that changed since are listed, and left out of the sums.
    pub since: Option<u64>,
    /// Idempotency keys that are left out of the sums.
    pub without: Vec<String>,
    /// Idempotency keys whose outcomes are listed.
    pub keys: Vec<String>,
}

/// The ledger as of one position.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StatementView)]
pub struct Statement {
    /// How many entries the ledger has.
    pub position: u64,
    pub totals: Vec<CurrencyTotals>,
    /// The outcomes of the keys that changed since.
    pub changed: Vec<ChargeAnswer>,
    /// The outcomes of `keys`, without unknown ones.
    pub outcomes: Vec<ChargeAnswer>,
}

impl Ledger {
    /// `None` when `since` is after the ledger's position.
    pub fn reconcile(&self, request: &Reconciliation) -> Option<Statement> {
        let since = usize::try_from(request.since.unwrap_or(self.position())).ok()?;
        let changed: HashSet<&str> = self.history.get(since..)?.iter().map(IdempotencyKey::as_str).collect();
        let left_out = changed.iter().copied().chain(request.without.iter().map(String::as_str)).collect();
        let outcomes = |keys: &mut dyn Iterator<Item = &str>| keys.filter_map(|key| self.outcome(key)).collect();
        Some(Statement {
            position: self.position(),
            totals: self.totals_without(left_out),
            changed: outcomes(&mut changed.into_iter()),
            outcomes: outcomes(&mut request.keys.iter().map(String::as_str)),
        })
    }

    fn totals_without(&self, left_out: HashSet<&str>) -> Vec<CurrencyTotals> {
        let mut totals = self.totals.clone();
        for outcome in left_out.into_iter().filter_map(|key| self.outcomes.get(key)) {
            match outcome {
                Outcome::Charged { charge_id, .. } => {
                    let Captured { charge, refunded } = &self.charges[charge_id];
                    let sums = totals.entry(charge.currency).or_default();
                    sums.charged -= charge.amount;
                    sums.charges -= 1;
                    if *refunded {
                        sums.refunded -= charge.amount;
                        sums.refunds -= 1;
                    }
                }
                Outcome::Declined { decline, .. } => {
                    totals.entry(decline.currency).or_default().declines -= 1;
                }
                Outcome::Voided => {}
            }
        }
        listed(&totals).collect()
    }
}
