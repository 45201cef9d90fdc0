//! The processor's ledger: which idempotency key led to which charge, decline or void, and the totals per currency.
//! Pure: an operation returns its answer and the entry to be journalled; replaying the entries rebuilds the same ledger, so
//! every answer can be repeated after a crash. A key has one outcome for ever, and a voided key never charges.
//!
//! No key is ever removed, so memory and start time grow with the number of keys. This is intended: a removed key could be
//! charged a second time, and the audit could not compare the ledgers. A real processor would use a database; this one has to
//! last for a demonstration or a proof. For longer use, begin with a new journal together with an empty database.

mod reconciliation;

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::reconciliation::{Reconciliation, Statement};
use crate::{
    card::{self, DeclineCode, MAX_AMOUNT},
    charge::{Charge, ChargeRequest, Currency, Decline, Fingerprint, IdempotencyKey},
};

/// All charges, declines and voids, by key and by id.
#[derive(Debug, Default)]
pub struct Ledger {
    outcomes: HashMap<IdempotencyKey, Outcome>,
    charges: HashMap<Uuid, Captured>,
    totals: BTreeMap<Currency, Totals>,
    /// The key of each entry, in their order.
    history: Vec<IdempotencyKey>,
}

/// An answer and, when the ledger changed, the entry that says how.
#[derive(Debug)]
pub struct Change<T> {
    pub answer: T,
    pub entry: Option<Entry>,
}

/// The outcome of a key; `status` names the variant, which stays `captured` after a refund.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
#[schema(as = OutcomeView)]
pub enum ChargeAnswer {
    Captured(Captured),
    Declined { idempotency_key: IdempotencyKey, decline_code: DeclineCode },
}

/// A captured charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Captured {
    #[serde(flatten)]
    pub charge: Charge,
    /// Whether it was refunded, in full.
    pub refunded: bool,
}

/// The result of a void: the key has no charge any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[schema(as = VoidView)]
pub enum VoidAnswer {
    /// Its charge was refunded.
    Refunded {
        charge_id: Uuid,
        /// Minor units.
        amount: i64,
        #[schema(value_type = String)]
        currency: Currency,
    },
    /// It had no charge; a later one is declined with `voided`.
    Voided,
}

/// One line of the journal: a change of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    Charged { fingerprint: Fingerprint, charge: Charge },
    Declined { fingerprint: Fingerprint, decline: Decline },
    Refunded { charge_id: Uuid },
    Voided { idempotency_key: IdempotencyKey },
}

/// Sums and counts of one currency; amounts in minor units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Totals {
    pub charged: i64,
    pub refunded: i64,
    pub charges: u64,
    pub refunds: u64,
    pub declines: u64,
}

/// One currency's sums, in minor units, and counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = CurrencyTotalsView)]
pub struct CurrencyTotals {
    #[schema(value_type = String)]
    pub currency: Currency,
    #[serde(flatten)]
    pub totals: Totals,
}

/// The key was used for another request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the idempotency key was used with another request body")]
pub struct KeyReused;

/// There is no charge with this id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no charge has the id {0}")]
pub struct UnknownCharge(pub Uuid);

/// An entry that no operation could have written at this position.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistency {
    #[error("the key {0:?} already has an outcome")]
    SecondOutcome(String),
    #[error("the charge id {0} exists already")]
    ChargeIdTaken(Uuid),
    #[error("the amount {0} is outside 1..={MAX_AMOUNT}")]
    Amount(i64),
    #[error("it refunds the charge {0}, which does not exist or was refunded before")]
    Refund(Uuid),
}

#[derive(Debug)]
enum Outcome {
    Charged { fingerprint: Fingerprint, charge_id: Uuid },
    Declined { fingerprint: Fingerprint, decline: Decline },
    Voided,
}

impl Ledger {
    /// Charges the card, or returns the key's stored answer. `charge_id` is used for a fresh charge only; `imposed` declines a
    /// fresh charge of a card that is good; one that is not keeps its own reason.
    pub fn charge(
        &mut self,
        key: &IdempotencyKey,
        request: &ChargeRequest,
        charge_id: Uuid,
        imposed: Option<DeclineCode>,
    ) -> Result<Change<ChargeAnswer>, KeyReused> {
        let fingerprint = request.fingerprint();
        if let Some(answer) = self.stored(key, &fingerprint)? {
            return Ok(Change { answer, entry: None });
        }
        let (answer, entry) = match card::refusal(&request.token, request.amount).or(imposed) {
            Some(decline_code) => {
                let decline = Decline { idempotency_key: key.clone(), decline_code, currency: request.currency };
                (declined(key, decline_code), Entry::Declined { fingerprint, decline })
            }
            None => {
                let charge = charge_for(key, request, charge_id);
                let captured = Captured { charge: charge.clone(), refunded: false };
                (ChargeAnswer::Captured(captured), Entry::Charged { fingerprint, charge })
            }
        };
        self.record(&entry);
        Ok(Change { answer, entry: Some(entry) })
    }

    /// Refunds a charge in full, once.
    pub fn refund(&mut self, charge_id: Uuid) -> Result<Change<ChargeAnswer>, UnknownCharge> {
        let Captured { charge, refunded } = self.charges.get(&charge_id).ok_or(UnknownCharge(charge_id))?;
        let answer = ChargeAnswer::Captured(Captured { charge: charge.clone(), refunded: true });
        let entry = (!refunded).then_some(Entry::Refunded { charge_id });
        entry.iter().for_each(|entry| self.record(entry));
        Ok(Change { answer, entry })
    }

    /// Ensures that the key has no charge, now and for ever: refunds its charge, or declines all later ones.
    ///
    /// A declined key is answered as voided and stays declined: its stored decline already prevents a charge.
    pub fn void(&mut self, key: &IdempotencyKey) -> Change<VoidAnswer> {
        if let Some(Outcome::Charged { charge_id, .. }) = self.outcomes.get(key)
            && let Ok(Change { answer: ChargeAnswer::Captured(captured), entry }) = self.refund(*charge_id)
        {
            let Charge { charge_id, amount, currency, .. } = captured.charge;
            return Change { answer: VoidAnswer::Refunded { charge_id, amount, currency }, entry };
        }
        let entry = (!self.outcomes.contains_key(key)).then(|| Entry::Voided { idempotency_key: key.clone() });
        entry.iter().for_each(|entry| self.record(entry));
        Change { answer: VoidAnswer::Voided, entry }
    }

    /// The stored answer of a key; `None` for an unknown key.
    pub fn outcome(&self, key: &str) -> Option<ChargeAnswer> {
        self.outcomes.get_key_value(key).map(|(key, outcome)| self.answer(key, outcome))
    }

    /// Sums and counts, by currency.
    pub fn totals(&self) -> impl Iterator<Item = CurrencyTotals> {
        listed(&self.totals)
    }

    /// The number of entries.
    pub fn position(&self) -> u64 {
        self.history.len() as u64
    }

    /// Applies an entry from the journal, unless it contradicts earlier ones.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), Inconsistency> {
        self.check(entry)?;
        self.record(entry);
        Ok(())
    }

    fn stored(&self, key: &IdempotencyKey, requested: &Fingerprint) -> Result<Option<ChargeAnswer>, KeyReused> {
        let Some(outcome) = self.outcomes.get(key) else { return Ok(None) };
        match outcome {
            Outcome::Charged { fingerprint, .. } | Outcome::Declined { fingerprint, .. }
                if fingerprint != requested =>
            {
                Err(KeyReused)
            }
            outcome => Ok(Some(self.answer(key, outcome))),
        }
    }

    fn answer(&self, key: &IdempotencyKey, outcome: &Outcome) -> ChargeAnswer {
        match outcome {
            Outcome::Charged { charge_id, .. } => ChargeAnswer::Captured(self.charges[charge_id].clone()),
            Outcome::Declined { decline, .. } => declined(key, decline.decline_code),
            Outcome::Voided => declined(key, DeclineCode::Voided),
        }
    }

    fn check(&self, entry: &Entry) -> Result<(), Inconsistency> {
        let key = match entry {
            Entry::Charged { charge, .. } if !(1..=MAX_AMOUNT).contains(&charge.amount) => {
                return Err(Inconsistency::Amount(charge.amount));
            }
            Entry::Charged { charge, .. } if self.charges.contains_key(&charge.charge_id) => {
                return Err(Inconsistency::ChargeIdTaken(charge.charge_id));
            }
            Entry::Refunded { charge_id } => {
                let refundable = self.charges.get(charge_id).is_some_and(|captured| !captured.refunded);
                return refundable.then_some(()).ok_or(Inconsistency::Refund(*charge_id));
            }
            Entry::Charged { charge, .. } => &charge.idempotency_key,
            Entry::Declined { decline, .. } => &decline.idempotency_key,
            Entry::Voided { idempotency_key } => idempotency_key,
        };
        match self.outcomes.contains_key(key) {
            true => Err(Inconsistency::SecondOutcome(key.as_str().to_owned())),
            false => Ok(()),
        }
    }

    /// Applies a checked entry. The sums cannot overflow: 9 × 10¹² charges of the largest amount fit.
    fn record(&mut self, entry: &Entry) {
        match entry.clone() {
            Entry::Charged { fingerprint, charge } => {
                self.history.push(charge.idempotency_key.clone());
                let totals = self.totals.entry(charge.currency).or_default();
                totals.charged += charge.amount;
                totals.charges += 1;
                let outcome = Outcome::Charged { fingerprint, charge_id: charge.charge_id };
                self.outcomes.insert(charge.idempotency_key.clone(), outcome);
                self.charges.insert(charge.charge_id, Captured { charge, refunded: false });
            }
            Entry::Declined { fingerprint, decline } => {
                self.totals.entry(decline.currency).or_default().declines += 1;
                self.history.push(decline.idempotency_key.clone());
                self.outcomes.insert(decline.idempotency_key.clone(), Outcome::Declined { fingerprint, decline });
            }
            Entry::Refunded { charge_id } => {
                if let Some(Captured { charge, refunded }) = self.charges.get_mut(&charge_id) {
                    *refunded = true;
                    self.history.push(charge.idempotency_key.clone());
                    let totals = self.totals.entry(charge.currency).or_default();
                    totals.refunded += charge.amount;
                    totals.refunds += 1;
                }
            }
            Entry::Voided { idempotency_key } => {
                self.history.push(idempotency_key.clone());
                self.outcomes.insert(idempotency_key, Outcome::Voided);
            }
        }
    }
}

fn charge_for(key: &IdempotencyKey, request: &ChargeRequest, charge_id: Uuid) -> Charge {
    Charge {
        charge_id,
        idempotency_key: key.clone(),
        amount: request.amount,
        currency: request.currency,
        order_id: request.order_id.clone(),
        customer_id: request.customer_id.clone(),
    }
}

fn declined(key: &IdempotencyKey, decline_code: DeclineCode) -> ChargeAnswer {
    ChargeAnswer::Declined { idempotency_key: key.clone(), decline_code }
}

fn listed(totals: &BTreeMap<Currency, Totals>) -> impl Iterator<Item = CurrencyTotals> {
    totals.iter().map(|(&currency, &totals)| CurrencyTotals { currency, totals })
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
