//! The processor at work: the ledger, its journal and the ways an answer may go astray. Every answer, a repeated one
//! included, waits until the ledger it was read from is on disk; so nothing that was answered is lost in a crash.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    card::{self, DeclineCode, Manner},
    charge::{Charge, ChargeRequest, Currency, IdempotencyKey},
    domain::{Change, ChargeAnswer, KeyReused, Ledger, Reconciliation, Statement, Totals, UnknownCharge, VoidAnswer},
    faults::{DropPoint, FaultSettings, Faults},
    journal::{Journal, JournalStopped, Written},
};

/// Attempts of `tok_flaky` that fail, per key.
const FLAKY_FAILURES: u32 = 2;

/// The processor. One lock orders all effects, so a key is charged once however many requests carry it.
#[derive(Debug)]
pub struct Gateway {
    state: Mutex<State>,
    written: Written,
    slow_answer: Duration,
}

/// What the caller gets to hear.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The answer to a request that had an effect.
    Fresh(T),
    /// The stored answer to a request seen before.
    Replayed(T),
    /// Nothing: the connection is dropped.
    Dropped,
}

/// Why a request has no answer of its own.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    KeyReused(#[from] KeyReused),
    #[error(transparent)]
    UnknownCharge(#[from] UnknownCharge),
    /// Nothing happened; asking again may help.
    #[error("the processor is unavailable at the moment")]
    Unavailable,
    #[error(transparent)]
    JournalStopped(#[from] JournalStopped),
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    journal: Journal,
    faults: Faults,
    /// Failed attempts of `tok_flaky` so far. Lost in a restart, as such things are.
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
        self.struck(async |decline| {
            self.wait_for_issuer(key, card::manner(&request.token)).await?;
            let imposed = decline.then_some(DeclineCode::CardDeclined);
            let reply = self.commit(|ledger| ledger.charge(key, request, Uuid::now_v7(), imposed)).await?;
            let captured_now = matches!(&reply, Reply::Fresh(ChargeAnswer::Captured(_)));
            let lost = captured_now && card::manner(&request.token) == Manner::UnknownOutcome;
            Ok(if lost { Reply::Dropped } else { reply })
        })
        .await
    }

    /// Gives all of a charge back, once.
    pub async fn refund(&self, charge_id: Uuid) -> Result<Reply<Charge>, GatewayError> {
        self.struck(async |_| self.commit(|ledger| ledger.refund(charge_id)).await).await
    }

    /// Makes sure that the key holds no money, now and for ever.
    pub async fn void(&self, key: &IdempotencyKey) -> Result<Reply<VoidAnswer>, GatewayError> {
        self.struck(async |_| self.commit(|ledger| Ok::<_, GatewayError>(ledger.void(key))).await).await
    }

    /// What became of a key, or `None` when it was never seen.
    pub async fn outcome(&self, key: &IdempotencyKey) -> Result<Option<ChargeAnswer>, JournalStopped> {
        self.read(|ledger| ledger.outcome(key)).await
    }

    /// Sums and counts, by currency.
    pub async fn totals(&self) -> Result<Vec<(Currency, Totals)>, JournalStopped> {
        self.read(|ledger| ledger.totals().collect()).await
    }

    /// What is to be compared with other books, or `None` when the ledger has not come that far.
    pub async fn reconcile(&self, asked: &Reconciliation) -> Result<Option<Statement>, JournalStopped> {
        self.read(|ledger| ledger.reconcile(asked)).await
    }

    /// Arms faults for a while, in place of those armed before.
    pub fn arm(&self, settings: FaultSettings, expires_in: Duration) {
        self.lock().faults.arm(settings, expires_in, Instant::now().into_std());
    }

    pub fn disarm(&self) {
        self.lock().faults.disarm();
    }

    /// The armed faults and how long they stay.
    pub fn armed(&self) -> Option<(FaultSettings, Duration)> {
        self.lock().faults.armed(Instant::now().into_std())
    }

    /// Tells when the journal can no longer be written.
    pub fn written(&self) -> Written {
        self.written.clone()
    }

    /// Carries an operation out as far as the armed faults let it; it is told whether it has to decline.
    async fn struck<T>(
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

    /// What the card issuer does before it decides. A key that has its outcome is not asked about again.
    async fn wait_for_issuer(&self, key: &IdempotencyKey, manner: Manner) -> Result<(), GatewayError> {
        let until = {
            let mut state = self.lock();
            if state.ledger.outcome(key).is_some() {
                return Ok(());
            }
            match manner {
                Manner::Prompt | Manner::UnknownOutcome => return Ok(()),
                Manner::Flaky => return state.flaky_attempt(key),
                Manner::Slow => {
                    let answer_at = Instant::now() + self.slow_answer;
                    *state.slow_until.entry(key.clone()).or_insert(answer_at)
                }
            }
        };
        tokio::time::sleep_until(until).await;
        self.lock().slow_until.remove(key);
        Ok(())
    }

    /// Decides and queues under one lock, so that the journal has the ledger's order; waits for the disk outside it.
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
        // Nothing panics between a change of the ledger and its entry, so a poisoned lock still guards a whole state.
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
