//! The saga's steps in the payment service: one function per step, named as the step is. Both prepare in a
//! short transaction, ask the gateway outside any, and settle the answers as they arrive.

mod charge;
mod refund;

use std::{iter, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use messaging::{Batch, Committed, Delivery, StepError, dry_run, retry_contended};
use saga::{Retry, Step, StepOn};
use tokio::time::sleep;

pub use charge::process_payment;
pub(crate) use refund::refund_forgotten;
pub use refund::refund_payment;

use crate::{
    App,
    domain::{Answer, Ask, Contradiction, Plan},
    gateway::{GatewayError, Intent},
    store::StoredPayment,
};

/// Answers that come within this time of each other are settled together.
const TOGETHER: Duration = Duration::from_millis(5);

/// What a dry run says of an event for which the gateway would be asked.
const ASKS_THE_PROCESSOR: &str = "it would ask the card processor; what follows depends on its answer";

impl From<Contradiction> for StepError {
    fn from(error: Contradiction) -> Self {
        StepError::failed(error)
    }
}

/// What is left to do before a delivery can be settled.
enum Next {
    Ask(Ask, Intent),
    Settle(Finding),
}

/// What is known when a delivery is settled.
#[derive(Clone)]
enum Finding {
    Answer(Answer),
    /// The gateway was not asked, and why.
    NotAsked(&'static str),
}

impl Finding {
    fn answer(&self) -> Option<&Answer> {
        match self {
            Finding::Answer(answer) => Some(answer),
            Finding::NotAsked(_) => None,
        }
    }
}

/// A delivery that can be settled.
#[derive(Clone)]
struct Found<E> {
    delivery: Delivery<E>,
    finding: Finding,
}

impl Next {
    fn of(plan: Plan, payment: Option<&StoredPayment>) -> Self {
        match (plan, payment) {
            (Plan::Ask(ask), Some(payment)) => Next::Ask(ask, intent(payment)),
            (Plan::Known(answer), _) => Next::Settle(Finding::Answer(answer)),
            (Plan::Skip(reason), _) => Next::Settle(Finding::NotAsked(reason)),
            (Plan::Ask(_), None) => Next::Settle(Finding::NotAsked("there is no payment")),
        }
    }
}

fn intent(payment: &StoredPayment) -> Intent {
    Intent {
        payment_id: payment.payment_id,
        order_id: payment.order_id,
        amount: payment.amount,
        method: payment.method.clone(),
    }
}

/// The deliveries; without those that belong to no saga, which can never be applied.
fn of_a_saga<E>(batch: Batch<E>) -> (Vec<Delivery<E>>, Committed) {
    let (within, outside): (Vec<_>, Vec<_>) =
        batch.into_deliveries().into_iter().partition(|delivery| delivery.meta.saga_id().is_some());
    let mut committed = Committed::nothing();
    for delivery in outside {
        committed.defer(delivery.meta.event_id, StepError::Poison("the event belongs to no saga".into()));
    }
    (within, committed)
}

/// Asks the gateway for all deliveries at the same time, and settles each soon after its answer is there, together
/// with those that come at about the same time: a slow card holds up nobody but itself. Deliveries without an
/// answer go back to the broker.
async fn ask_and_settle<E, F, S>(
    app: &App,
    step: &'static StepOn<E>,
    todo: Vec<(Delivery<E>, Next)>,
    settle: S,
) -> Result<Committed, StepError>
where
    E: Clone,
    S: Fn(App, Vec<Found<E>>) -> F,
    F: Future<Output = Result<Committed, StepError>>,
{
    let mut asked: FuturesUnordered<_> =
        todo.into_iter().map(|(delivery, next)| ask(app, step, delivery, next)).collect();
    let mut committed = Committed::nothing();
    while let Some(first) = asked.next().await {
        let others: Vec<_> = asked.by_ref().take_until(sleep(TOGETHER)).collect().await;
        let mut found = Vec::with_capacity(others.len() + 1);
        for (delivery, outcome) in iter::once(first).chain(others) {
            match outcome {
                Ok(finding) => found.push(Found { delivery, finding }),
                Err(error) => committed.defer(delivery.meta.event_id, error.into()),
            }
        }
        if !found.is_empty() {
            committed = committed.and(retry_contended(|| settle(app.clone(), found.clone())).await?);
        }
    }
    Ok(committed)
}

/// Asks until the outcome is known, or patience ends.
async fn ask<E>(
    app: &App,
    step: &'static Step,
    delivery: Delivery<E>,
    next: Next,
) -> (Delivery<E>, Result<Finding, GatewayError>) {
    let (ask, intent) = match next {
        Next::Settle(finding) => return (delivery, Ok(finding)),
        Next::Ask(ask, intent) => (ask, intent),
    };
    if dry_run::would_call(ASKS_THE_PROCESSOR) {
        return (delivery, Err(GatewayError::Unavailable("nobody is asked in a dry run".into())));
    }
    let context = delivery.meta.context();
    let answer = resilience::retry(
        &at_once(app.participant.policy(step).retry),
        app.config.gateway_patience,
        GatewayError::is_unknown,
        || app.gateway.ask(&ask, &intent, &context),
    )
    .await;
    (delivery, answer.map(Finding::Answer))
}

/// The step's retries, in quick motion: its own waits are those between deliveries.
fn at_once(retry: Retry) -> Retry {
    Retry { initial: retry.initial / 10, max: retry.initial * 2, ..retry }
}
