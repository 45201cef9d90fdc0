//! A gateway in memory: a correct ledger, with scripted faults of calls.

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
};

use contracts::PaymentId;
use futures_util::future::BoxFuture;
use messaging::Context;
use payment::{
    domain::{Answer, Ask, DeclineCode, Reference},
    gateway::{GatewayError, Intent, PaymentGateway},
};
use tokio::sync::watch;

/// A fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFault {
    /// The gateway cannot be reached.
    Unreachable,
    /// The request is lost.
    RequestLost,
    /// The call has its effect, and the answer is lost.
    AnswerLost,
    /// The gateway forgets that the key is void.
    Forgetful,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Charged(i64),
    Declined,
    Fenced,
    Refunded(i64),
}

/// [`ScriptedGateway::release`] is waited for by charges with the token `tok_held`, by the answers to those with
/// `tok_answer_held`, and by voids of those with `tok_void_held`. `tok_declined` is declined, all others are approved.
pub(crate) struct ScriptedGateway {
    keys: Mutex<HashMap<PaymentId, Key>>,
    faults: Mutex<VecDeque<CallFault>>,
    calls: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Default for ScriptedGateway {
    fn default() -> Self {
        ScriptedGateway {
            keys: Mutex::default(),
            faults: Mutex::default(),
            calls: watch::Sender::new(0),
            released: watch::Sender::new(false),
        }
    }
}

impl ScriptedGateway {
    /// The faults of the next calls, one after the other.
    pub(crate) fn next(&self, faults: &[CallFault]) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// Releases what is held.
    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    async fn until_released(&self) {
        self.released.subscribe().wait_for(|released| *released).await.unwrap();
    }

    pub(crate) async fn called(&self, times: usize) {
        self.calls.subscribe().wait_for(|calls| *calls >= times).await.unwrap();
    }

    pub(crate) fn calls(&self) -> usize {
        *self.calls.borrow()
    }

    /// The sum of all charges, and the sum that is not refunded.
    pub(crate) fn charged_and_held(&self) -> (i64, i64) {
        let keys = self.keys.lock().unwrap();
        let amount = |key: &Key| match key {
            Key::Charged(amount) => (*amount, *amount),
            Key::Refunded(amount) => (*amount, 0),
            Key::Declined | Key::Fenced => (0, 0),
        };
        keys.values().map(amount).fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    fn decide(&self, ask: &Ask, intent: &Intent, forgetful: bool) -> Answer {
        let reference = Reference(format!("ch_{}", intent.payment_id));
        let mut keys = self.keys.lock().unwrap();
        if forgetful && keys.get(&intent.payment_id) == Some(&Key::Fenced) {
            keys.remove(&intent.payment_id);
        }
        let amount = intent.amount.amount;
        let key = keys.entry(intent.payment_id).or_insert(match ask {
            Ask::Charge if intent.method == "tok_declined" => Key::Declined,
            Ask::Charge => Key::Charged(amount),
            Ask::Void | Ask::Refund(_) => Key::Fenced,
        });
        if let (Ask::Void | Ask::Refund(_), Key::Charged(amount)) = (ask, &*key) {
            *key = Key::Refunded(*amount);
        }
        match (ask, key) {
            (_, Key::Refunded(_)) => Answer::Refunded(reference),
            (_, Key::Charged(_)) => Answer::Captured(reference),
            (Ask::Charge, Key::Fenced) => Answer::Declined(DeclineCode("voided".to_owned())),
            (Ask::Charge, Key::Declined) => Answer::Declined(DeclineCode("card_declined".to_owned())),
            (_, Key::Declined | Key::Fenced) => Answer::Fenced,
        }
    }
}

impl PaymentGateway for ScriptedGateway {
    fn ask<'a>(
        &'a self,
        ask: &'a Ask,
        intent: &'a Intent,
        _: &'a Context,
    ) -> BoxFuture<'a, Result<Answer, GatewayError>> {
        Box::pin(async move {
            self.calls.send_modify(|calls| *calls += 1);
            let method = intent.method.as_str();
            if matches!((method, ask), ("tok_held", Ask::Charge) | ("tok_void_held", Ask::Void)) {
                self.until_released().await;
            }
            let fault = self.faults.lock().unwrap().pop_front();
            match fault {
                Some(CallFault::Unreachable) => return Err(GatewayError::Unavailable("unreachable".into())),
                Some(CallFault::RequestLost) => return Err(GatewayError::Unknown("the request is lost".into())),
                _ => {}
            }
            let answer = self.decide(ask, intent, fault == Some(CallFault::Forgetful));
            if matches!((method, ask), ("tok_answer_held", Ask::Charge)) {
                self.until_released().await;
            }
            if fault == Some(CallFault::AnswerLost) {
                return Err(GatewayError::Unknown("the answer is lost".into()));
            }
            Ok(answer)
        })
    }
}
