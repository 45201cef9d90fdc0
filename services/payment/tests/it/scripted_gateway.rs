//! A gateway in memory: an honest ledger, and answers that go astray as a test wishes.

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

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twist {
    /// The gateway cannot be reached.
    Away,
    /// The call is lost on its way there.
    Lost,
    /// It had its effect, and the answer is lost.
    AnswerLost,
    /// The gateway forgets that the key is void.
    Forgetful,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Charged(i64),
    Declined,
    Fenced,
    GivenBack(i64),
}

/// Charges with the token `tok_held` wait for [`ScriptedGateway::release`], `tok_declined` is declined, all
/// others are approved.
pub(crate) struct ScriptedGateway {
    keys: Mutex<HashMap<PaymentId, Key>>,
    twists: Mutex<VecDeque<Twist>>,
    calls: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Default for ScriptedGateway {
    fn default() -> Self {
        ScriptedGateway {
            keys: Mutex::default(),
            twists: Mutex::default(),
            calls: watch::Sender::new(0),
            released: watch::Sender::new(false),
        }
    }
}

impl ScriptedGateway {
    /// The next calls go wrong like this, one after the other.
    pub(crate) fn next(&self, twists: &[Twist]) {
        self.twists.lock().unwrap().extend(twists);
    }

    /// Lets the held charges go on.
    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    pub(crate) async fn called(&self, times: usize) {
        self.calls.subscribe().wait_for(|calls| *calls >= times).await.unwrap();
    }

    pub(crate) fn calls(&self) -> usize {
        *self.calls.borrow()
    }

    /// The money it has taken, and the money it has kept.
    pub(crate) fn taken_and_kept(&self) -> (i64, i64) {
        let keys = self.keys.lock().unwrap();
        let amount = |key: &Key| match key {
            Key::Charged(amount) => (*amount, *amount),
            Key::GivenBack(amount) => (*amount, 0),
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
            *key = Key::GivenBack(*amount);
        }
        match (ask, key) {
            (_, Key::GivenBack(_)) => Answer::GivenBack(reference),
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
            if intent.method == "tok_held" && *ask == Ask::Charge {
                self.released.subscribe().wait_for(|released| *released).await.unwrap();
            }
            let twist = self.twists.lock().unwrap().pop_front();
            match twist {
                Some(Twist::Away) => return Err(GatewayError::Unavailable("away".into())),
                Some(Twist::Lost) => return Err(GatewayError::Unknown("lost".into())),
                _ => {}
            }
            let answer = self.decide(ask, intent, twist == Some(Twist::Forgetful));
            if twist == Some(Twist::AnswerLost) {
                return Err(GatewayError::Unknown("the answer is lost".into()));
            }
            Ok(answer)
        })
    }
}
