//! A step that asks another system, in three phases: what is about to be asked is written down in a short transaction, the
//! other system is asked with no transaction open, and the answers are settled as they arrive, each in a step transaction.
//! A crash between any two of them means a redelivery.

use std::{collections::HashMap, iter, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use messaging::{Batch, Committed, Context, Delivery, Outbox, StepError, StepResult, inbox, retry_contended};
use saga::{Event, SagaDefinition, StepOn};
use tokio::time::sleep;
use uuid::Uuid;

use crate::{StepTransaction, step::outside};

/// Answers that come within this time of each other are settled together.
const SETTLE_WINDOW: Duration = Duration::from_millis(5);

/// The three phases of one step.
pub trait ThreePhases: Sync {
    /// What sets the step in motion.
    type Event: Event + Clone;
    type Question: Send;
    type Answer: Clone + Send + Sync;

    /// What a dry run says instead of asking.
    const WOULD_ASK: &'static str;

    fn step(&self) -> &'static StepOn<Self::Event>;

    /// Writes down what is about to be asked, and says it of each delivery, in their order. Nothing is locked.
    fn prepare(
        &self,
        tx: &mut StepTransaction<()>,
        deliveries: &[&Delivery<Self::Event>],
    ) -> impl Future<Output = Prepared<Self::Question, Self::Answer>> + Send;

    /// Asks until the answer is known, or patience ends: then the delivery goes back to the broker.
    fn ask(
        &self,
        question: Self::Question,
        context: &Context,
    ) -> impl Future<Output = Result<Self::Answer, StepError>> + Send;

    /// Answers each delivery.
    fn settle(
        &self,
        tx: &mut StepTransaction<Delivery<Self::Event>>,
        found: &[Found<Self::Event, Self::Answer>],
    ) -> impl Future<Output = Result<(), StepError>> + Send;
}

/// What is left to do before a delivery can be settled.
#[derive(Debug)]
pub enum Next<Q, A> {
    Ask(Q),
    Settle(Finding<A>),
}

/// What is to be asked of each delivery.
pub type Prepared<Q, A> = Result<Vec<Next<Q, A>>, StepError>;

/// What is known when a delivery is settled.
#[derive(Debug, Clone)]
pub enum Finding<A> {
    Answer(A),
    /// The other system was not asked, and why.
    NotAsked(&'static str),
}

impl<A> Finding<A> {
    pub fn answer(&self) -> Option<&A> {
        match self {
            Finding::Answer(answer) => Some(answer),
            Finding::NotAsked(_) => None,
        }
    }
}

/// A delivery that can be settled.
pub type Found<E, A> = (Delivery<E>, Finding<A>);

/// Takes the step for a batch. All deliveries are asked for at the same time, and each is settled soon after its answer is
/// there, together with those whose answers come at about the same time: a slow answer holds up no other delivery.
pub async fn three_phases<S: ThreePhases>(
    outbox: &Outbox,
    definition: &'static SagaDefinition,
    step: &S,
    batch: Batch<S::Event>,
) -> StepResult {
    let outbox = &outbox.for_batch(&batch);
    let (deliveries, strays): (Vec<_>, Vec<_>) =
        batch.into_deliveries().into_iter().partition(|delivery| delivery.meta.saga_id().is_some());
    let mut committed = Committed::nothing();
    for stray in strays {
        committed.defer(stray.meta.event_id, outside());
    }
    let next = retry_contended(|| prepare(outbox, definition, step, &deliveries)).await?;
    let mut asked: FuturesUnordered<_> =
        deliveries.into_iter().zip(next).map(|(delivery, next)| ask(outbox, step, delivery, next)).collect();
    while let Some(first) = asked.next().await {
        let others: Vec<_> = asked.by_ref().take_until(sleep(SETTLE_WINDOW)).collect().await;
        let mut found = Vec::with_capacity(others.len() + 1);
        for (delivery, outcome) in iter::once(first).chain(others) {
            match outcome {
                Ok(finding) => found.push((delivery, finding)),
                Err(error) => committed.defer(delivery.meta.event_id, error),
            }
        }
        if !found.is_empty() {
            committed = committed.and(retry_contended(|| settle(outbox, definition, step, &found)).await?);
        }
    }
    Ok(committed)
}

async fn prepare<S: ThreePhases>(
    outbox: &Outbox,
    definition: &'static SagaDefinition,
    step: &S,
    deliveries: &[Delivery<S::Event>],
) -> Prepared<S::Question, S::Answer> {
    let event_ids: Vec<Uuid> = deliveries.iter().map(|delivery| delivery.meta.event_id).collect();
    let mut tx = StepTransaction::begin(outbox, definition, step.step()).await?;
    let had = inbox::already_had(tx.conn(), &step.step().consumer(), &event_ids).await?;
    let fresh: Vec<_> = deliveries.iter().filter(|delivery| !had.contains(&delivery.meta.event_id)).collect();
    let mut prepared = step.prepare(&mut tx, &fresh).await?.into_iter();
    tx.commit_intent().await?;
    let next = deliveries.iter().map(|delivery| match had.contains(&delivery.meta.event_id) {
        true => Ok(Next::Settle(Finding::NotAsked("a repeated delivery"))),
        false => prepared.next().ok_or_else(|| StepError::failed("a delivery was left out when the step was prepared")),
    });
    next.collect()
}

async fn ask<S: ThreePhases>(
    outbox: &Outbox,
    step: &S,
    delivery: Delivery<S::Event>,
    next: Next<S::Question, S::Answer>,
) -> (Delivery<S::Event>, Result<Finding<S::Answer>, StepError>) {
    let question = match next {
        Next::Settle(finding) => return (delivery, Ok(finding)),
        Next::Ask(question) => question,
    };
    if outbox.would_call(S::WOULD_ASK) {
        return (delivery, Err(StepError::unavailable("nobody is asked in a dry run")));
    }
    let answer = step.ask(question, &delivery.meta.context()).await;
    (delivery, answer.map(Finding::Answer))
}

/// One transaction for the deliveries whose answers are there.
async fn settle<S: ThreePhases>(
    outbox: &Outbox,
    definition: &'static SagaDefinition,
    step: &S,
    found: &[Found<S::Event, S::Answer>],
) -> StepResult {
    let findings: HashMap<Uuid, &Finding<S::Answer>> = found.iter().map(|(d, f)| (d.meta.event_id, f)).collect();
    let batch = Batch::new(&step.step().step, found.iter().map(|(delivery, _)| delivery.clone()).collect());
    let (mut tx, deliveries) = StepTransaction::claim(outbox, definition, step.step(), batch).await?;
    let with_finding = |delivery: Delivery<S::Event>| {
        let finding = findings.get(&delivery.meta.event_id).copied().cloned()?;
        Some((delivery, finding))
    };
    let fresh: Vec<_> = deliveries.into_iter().filter_map(with_finding).collect();
    step.settle(&mut tx, &fresh).await?;
    tx.commit().await
}
