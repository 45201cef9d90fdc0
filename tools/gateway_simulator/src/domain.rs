//! The processor's ledger: which idempotency key led to which charge, decline or void, and the totals per currency.
//! Pure: an operation returns its answer and the entry that must be journalled for it; replaying the entries rebuilds
//! the same ledger, so every answer can be given again after a crash. A key has one outcome for ever, and a voided key
//! never charges.
//!
//! So nothing is ever forgotten, and memory grows with each key, as does the time that a start takes. That is meant: whoever
//! forgets a key charges it twice when it is asked for again, after however long, and no audit could compare the books. A
//! real processor keeps them in a database; this one has to last for a demonstration or a proof. For more, begin with
//! a new journal, together with an empty database.

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
    charges: HashMap<Uuid, Charge>,
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

/// The answer to a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChargeAnswer {
    Captured(Charge),
    Declined(Decline),
}

/// The answer to a void.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoidAnswer {
    /// The key had charged; the money went back.
    Refunded(Charge),
    /// The key had not charged and never will.
    Voided,
}

/// One line of the journal: something that happened to the ledger.
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

/// The key already stands for another request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the idempotency key was used with another request body")]
pub struct KeyReused;

/// There is no charge with this id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no charge has the id {0}")]
pub struct UnknownCharge(pub Uuid);

/// An entry that no operation could have written at this place.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistency {
    #[error("the key {0:?} already has an outcome")]
    SecondOutcome(String),
    #[error("the charge id {0} is taken")]
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
    /// Charges the card, or gives the key's stored answer. `charge_id` is used for a fresh charge only; `imposed`
    /// refuses a fresh charge whatever the card says.
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
        let (answer, entry) = match imposed.or_else(|| card::refusal(&request.token, request.amount)) {
            Some(code) => {
                let decline = declined(key, code, Some(request.currency));
                (ChargeAnswer::Declined(decline.clone()), Entry::Declined { fingerprint, decline })
            }
            None => {
                let charge = captured(key, request, charge_id);
                (ChargeAnswer::Captured(charge.clone()), Entry::Charged { fingerprint, charge })
            }
        };
        self.record(&entry);
        Ok(Change { answer, entry: Some(entry) })
    }

    /// Gives all of a charge back, once.
    pub fn refund(&mut self, charge_id: Uuid) -> Result<Change<Charge>, UnknownCharge> {
        let charge = self.charges.get(&charge_id).ok_or(UnknownCharge(charge_id))?;
        let answer = Charge { refunded: true, ..charge.clone() };
        let entry = (!charge.refunded).then_some(Entry::Refunded { charge_id });
        entry.iter().for_each(|entry| self.record(entry));
        Ok(Change { answer, entry })
    }

    /// Makes sure that the key holds no money, now and for ever: refunds its charge, or refuses all later ones.
    ///
    /// A declined key is answered as voided and stays declined: its stored decline already keeps it from charging.
    pub fn void(&mut self, key: &IdempotencyKey) -> Change<VoidAnswer> {
        if let Some(Outcome::Charged { charge_id, .. }) = self.outcomes.get(key)
            && let Ok(Change { answer, entry }) = self.refund(*charge_id)
        {
            return Change { answer: VoidAnswer::Refunded(answer), entry };
        }
        let entry = (!self.outcomes.contains_key(key)).then(|| Entry::Voided { idempotency_key: key.clone() });
        entry.iter().for_each(|entry| self.record(entry));
        Change { answer: VoidAnswer::Voided, entry }
    }

    /// What a charge with this key was, or would be, answered; `None` for a key never seen.
    pub fn outcome(&self, key: &IdempotencyKey) -> Option<ChargeAnswer> {
        self.outcomes.get(key).map(|outcome| self.answer(key, outcome))
    }

    /// Sums and counts, by currency.
    pub fn totals(&self) -> impl Iterator<Item = (Currency, Totals)> {
        self.totals.iter().map(|(currency, totals)| (*currency, *totals))
    }

    /// How many entries have led here.
    pub fn position(&self) -> u64 {
        self.history.len() as u64
    }

    /// Takes over an entry read from the journal, unless it contradicts the ones before it.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), Inconsistency> {
        self.check(entry)?;
        self.record(entry);
        Ok(())
    }

    fn stored(&self, key: &IdempotencyKey, asked: &Fingerprint) -> Result<Option<ChargeAnswer>, KeyReused> {
        let Some(outcome) = self.outcomes.get(key) else { return Ok(None) };
        match outcome {
            Outcome::Charged { fingerprint, .. } | Outcome::Declined { fingerprint, .. } if fingerprint != asked => {
                Err(KeyReused)
            }
            outcome => Ok(Some(self.answer(key, outcome))),
        }
    }

    fn answer(&self, key: &IdempotencyKey, outcome: &Outcome) -> ChargeAnswer {
        match outcome {
            Outcome::Charged { charge_id, .. } => ChargeAnswer::Captured(self.charges[charge_id].clone()),
            Outcome::Declined { decline, .. } => ChargeAnswer::Declined(decline.clone()),
            Outcome::Voided => ChargeAnswer::Declined(declined(key, DeclineCode::Voided, None)),
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
                let refundable = self.charges.get(charge_id).is_some_and(|charge| !charge.refunded);
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

    /// Carries out an entry that is known to fit. The sums cannot overflow: 9 × 10¹² charges of the largest amount fit.
    fn record(&mut self, entry: &Entry) {
        match entry.clone() {
            Entry::Charged { fingerprint, charge } => {
                self.history.push(charge.idempotency_key.clone());
                let totals = self.totals.entry(charge.currency).or_default();
                totals.charged += charge.amount;
                totals.charges += 1;
                let outcome = Outcome::Charged { fingerprint, charge_id: charge.charge_id };
                self.outcomes.insert(charge.idempotency_key.clone(), outcome);
                self.charges.insert(charge.charge_id, charge);
            }
            Entry::Declined { fingerprint, decline } => {
                if let Some(currency) = decline.currency {
                    self.totals.entry(currency).or_default().declines += 1;
                }
                self.history.push(decline.idempotency_key.clone());
                self.outcomes.insert(decline.idempotency_key.clone(), Outcome::Declined { fingerprint, decline });
            }
            Entry::Refunded { charge_id } => {
                if let Some(charge) = self.charges.get_mut(&charge_id) {
                    charge.refunded = true;
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

fn captured(key: &IdempotencyKey, request: &ChargeRequest, charge_id: Uuid) -> Charge {
    Charge {
        charge_id,
        idempotency_key: key.clone(),
        amount: request.amount,
        currency: request.currency,
        order_id: request.order_id.clone(),
        customer_id: request.customer_id.clone(),
        refunded: false,
    }
}

fn declined(key: &IdempotencyKey, decline_code: DeclineCode, currency: Option<Currency>) -> Decline {
    Decline { idempotency_key: key.clone(), decline_code, currency }
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
