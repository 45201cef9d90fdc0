//! The processor: the ledger, its journal, and the faults on the way of an answer. Every answer, a repeated one too, waits until
//! the ledger that it was read from is on disk, so a crash loses nothing that was answered.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    card::{self, DeclineCode, Delivery},
    charge::{ChargeRequest, IdempotencyKey},
    domain::{
        Change, ChargeAnswer, CurrencyTotals, KeyReused, Ledger, Reconciliation, Statement, UnknownCharge, VoidAnswer,
    },
    faults::{DropPoint, FaultSettings, Faults},
    journal::{Journal, JournalStopped, Written},
};

/// Attempts of `tok_flaky` that fail, per key.
const FLAKY_FAILURES: u32 = 2;

/// The processor. One lock orders all effects, so concurrent requests with one key charge once.
#[derive(Debug)]
pub struct Gateway {
    state: Mutex<State>,
    written: Written,
    slow_answer: Duration,
}

/// What the caller receives.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The answer to a request that had an effect.
    Fresh(T),
    /// The stored answer to a request seen before.
    Replayed(T),
    /// Nothing: the connection is dropped.
    Dropped,
}

/// Why a request failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    KeyReused(#[from] KeyReused),
    #[error(transparent)]
    UnknownCharge(#[from] UnknownCharge),
    /// Nothing happened; a retry may succeed.
    #[error("the processor is temporarily unavailable")]
    Unavailable,
    #[error(transparent)]
    JournalStopped(#[from] JournalStopped),
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    journal: Journal,
    faults: Faults,
    /// Failed attempts of `tok_flaky` so far; not durable.
    flaky_attempts: HashMap<IdempotencyKey, u32>,
    /// When the issuer answers a `tok_slow` charge; repeated requests wait for the same moment.
    slow_until: HashMap<IdempotencyKey, Instant>,
}

impl Gateway {
    pub fn new(ledger: Ledger, journal: Journal, slow_answer: Duration) -> Self {
        let written = journal.written();
        let state = State {
            ledger,
            journal,
            faults: Faults::default(),
            flaky_attempts: HashMap::new(),
            slow_until: HashMap::new(),
        };
        Self { state: Mutex::new(state), written, slow_answer }
    }

    /// Charges a card, or repeats the key's stored answer.
    pub async fn charge(
        &self,
        key: &IdempotencyKey,
        request: &ChargeRequest,
    ) -> Result<Reply<ChargeAnswer>, GatewayError> {
        self.with_faults(async |decline| {
            self.wait_for_issuer(key, card::delivery(&request.token)).await?;
            let imposed = decline.then_some(DeclineCode::CardDeclined);
            let reply = self.commit(|ledger| ledger.charge(key, request, Uuid::now_v7(), imposed)).await?;
            let captured_now = matches!(&reply, Reply::Fresh(ChargeAnswer::Captured(_)));
            let lost = captured_now && card::delivery(&request.token) == Delivery::UnknownOutcome;
            Ok(if lost { Reply::Dropped } else { reply })
        })
        .await
    }

    /// Refunds a charge in full, once.
    pub async fn refund(&self, charge_id: Uuid) -> Result<Reply<ChargeAnswer>, GatewayError> {
        self.with_faults(async |_| self.commit(|ledger| ledger.refund(charge_id)).await).await
    }

    /// Ensures that the key has no charge, now and for ever.
    pub async fn void(&self, key: &IdempotencyKey) -> Result<Reply<VoidAnswer>, GatewayError> {
        self.with_faults(async |_| self.commit(|ledger| Ok::<_, GatewayError>(ledger.void(key))).await).await
    }

    /// The outcome of a key; `None` for an unknown key.
    pub async fn outcome(&self, key: &str) -> Result<Option<ChargeAnswer>, JournalStopped> {
        self.read(|ledger| ledger.outcome(key)).await
    }

    /// Sums and counts, by currency.
    pub async fn totals(&self) -> Result<Vec<CurrencyTotals>, JournalStopped> {
        self.read(|ledger| ledger.totals().collect()).await
    }

    /// See [`Ledger::reconcile`].
    pub async fn reconcile(&self, request: &Reconciliation) -> Result<Option<Statement>, JournalStopped> {
        self.read(|ledger| ledger.reconcile(request)).await
    }

    /// Arms faults in place of earlier ones.
    pub fn arm(&self, settings: FaultSettings) {
        self.lock().faults.arm(settings, Instant::now().into_std());
    }

    pub fn disarm(&self) {
        self.lock().faults.disarm();
    }

    /// The armed faults with the remaining time.
    pub fn armed(&self) -> Option<FaultSettings> {
        self.lock().faults.armed(Instant::now().into_std())
    }

    /// Runs an operation under the armed faults; its argument is whether to decline.
    async fn with_faults<T>(
        &self,
        operation: impl AsyncFnOnce(bool) -> Result<Reply<T>, GatewayError>,
    ) -> Result<Reply<T>, GatewayError> {
        let strike = self.lock().faults.strike(Instant::now().into_std());
        if !strike.latency.is_zero() {
            tokio::time::sleep(strike.latency).await;
        }
        if strike.error {
            return Err(GatewayError::Unavailable);
        }
        if strike.drop == Some(DropPoint::BeforeEffect) {
            return Ok(Reply::Dropped);
        }
        let reply = operation(strike.decline).await?;
        Ok(if strike.drop == Some(DropPoint::AfterEffect) { Reply::Dropped } else { reply })
    }

    /// The card issuer's delay or error. A key with an outcome skips it.
    async fn wait_for_issuer(&self, key: &IdempotencyKey, delivery: Delivery) -> Result<(), GatewayError> {
        let until = {
            let mut state = self.lock();
            if state.ledger.outcome(key.as_str()).is_some() {
                return Ok(());
            }
            match delivery {
                Delivery::Prompt | Delivery::UnknownOutcome => return Ok(()),
                Delivery::Flaky => return state.flaky_attempt(key),
                Delivery::Slow => {
                    let answer_at = Instant::now() + self.slow_answer;
                    *state.slow_until.entry(key.clone()).or_insert(answer_at)
                }
            }
        };
        tokio::time::sleep_until(until).await;
        self.lock().slow_until.remove(key);
        Ok(())
    }

    /// Applies and queues under one lock, so that the journal has the ledger's order; waits for the disk without the lock.
    async fn commit<T, E>(
        &self,
        operation: impl FnOnce(&mut Ledger) -> Result<Change<T>, E>,
    ) -> Result<Reply<T>, GatewayError>
    where
        GatewayError: From<E>,
    {
        let (reply, position) = {
            let mut state = self.lock();
            let Change { answer, entry } = operation(&mut state.ledger)?;
            let reply = if entry.is_some() { Reply::Fresh(answer) } else { Reply::Replayed(answer) };
            entry.into_iter().for_each(|entry| state.journal.append(entry));
            (reply, state.journal.position())
        };
        self.written.reach(position).await?;
        Ok(reply)
    }

    async fn read<T>(&self, question: impl FnOnce(&Ledger) -> T) -> Result<T, JournalStopped> {
        let (answer, position) = {
            let state = self.lock();
            (question(&state.ledger), state.journal.position())
        };
        self.written.reach(position).await?;
        Ok(answer)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between a change of the ledger and its entry, so a poisoned lock guards a consistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn flaky_attempt(&mut self, key: &IdempotencyKey) -> Result<(), GatewayError> {
        let attempts = self.flaky_attempts.entry(key.clone()).or_default();
        if *attempts < FLAKY_FAILURES {
            *attempts += 1;
            return Err(GatewayError::Unavailable);
        }
        self.flaky_attempts.remove(key);
        Ok(())
    }
}
