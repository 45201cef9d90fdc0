//! A step that calls another system, in three phases: a short transaction writes the intent, the other system is called with no
//! transaction open, and the answers are applied as they arrive, in step transactions. A crash between two phases leads to a
//! redelivery. A step after the pivot makes no call for a saga that was reopened; if the saga is reopened during the call, the
//! answer is still applied, and [`StepTransaction::done`] skips it.

use std::{collections::HashMap, pin::pin, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use messaging::{Batch, Committed, Context, Delivery, Outbox, StepError, StepResult, gather, inbox, retry_contended};
use saga::{Event, SagaDefinition, StepOn};
use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    StepTransaction, query,
    step::{REOPENED, outside_saga},
};

/// Answers that arrive within this time of each other, or less where few are asked for, are applied in one transaction.
const MOST_GATHERING: Duration = Duration::from_millis(20);

/// The three phases of one step.
pub trait ThreePhases: Sync {
    /// The event that triggers the step.
    type Event: Event + Clone;
    type Question: Send;
    type Answer: Clone + Send + Sync;

    /// What a dry run reports instead of calling.
    const WOULD_ASK: &'static str;

    fn step(&self) -> &'static StepOn<Self::Event>;

    /// Writes the intents, and returns what to do for each delivery, in their order. Nothing is locked.
    fn prepare(
        &self,
        tx: &mut StepTransaction<()>,
        deliveries: &[&Delivery<Self::Event>],
    ) -> impl Future<Output = Prepared<Self::Question, Self::Answer>> + Send;

    /// Calls the other system until the answer is known, or its time limit ends: then the delivery goes back to the broker.
    fn ask(
        &self,
        question: Self::Question,
        context: &Context,
    ) -> impl Future<Output = Result<Self::Answer, StepError>> + Send;

    /// Answers each delivery.
    fn apply_outcomes(
        &self,
        tx: &mut StepTransaction<Delivery<Self::Event>>,
        outcomes: &[DeliveryOutcome<Self::Event, Self::Answer>],
    ) -> impl Future<Output = Result<(), StepError>> + Send;
}

/// What is left to do for a delivery.
#[derive(Debug)]
pub enum Next<Q, A> {
    Ask(Q),
    Apply(Outcome<A>),
}

/// What is left to do for each delivery.
pub type Prepared<Q, A> = Result<Vec<Next<Q, A>>, StepError>;

/// The outcome of the call for a delivery.
#[derive(Debug, Clone)]
pub enum Outcome<A> {
    Answer(A),
    /// The other system was not called, for this reason.
    NotAsked(&'static str),
}

impl<A> Outcome<A> {
    pub fn answer(&self) -> Option<&A> {
        match self {
            Outcome::Answer(answer) => Some(answer),
            Outcome::NotAsked(_) => None,
        }
    }
}

/// A delivery and the outcome of its call.
pub type DeliveryOutcome<E, A> = (Delivery<E>, Outcome<A>);

/// Takes the step for a batch. The calls for all deliveries run concurrently, and each outcome is applied soon after its answer
/// arrives, together with those that arrive at about the same time: a slow answer delays no other delivery.
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
        committed.defer(stray.meta.event_id, outside_saga());
    }
    let next = retry_contended(|| prepare(outbox, definition, step, &deliveries)).await?;
    let mut asked: FuturesUnordered<_> =
        deliveries.into_iter().zip(next).map(|(delivery, next)| ask(outbox, step, delivery, next)).collect();
    let mut answered = Vec::new();
    loop {
        if answered.is_empty() {
            let Some(first) = asked.next().await else { return Ok(committed) };
            answered.push(first);
        }
        let gather = sleep(gather::window(asked.len() + answered.len(), MOST_GATHERING));
        answered.extend(asked.by_ref().take_until(gather).collect::<Vec<_>>().await);
        let mut outcomes = Vec::with_capacity(answered.len());
        for (delivery, result) in answered.drain(..) {
            match result {
                Ok(outcome) => outcomes.push((delivery, outcome)),
                Err(error) => committed.defer(delivery.meta.event_id, error),
            }
        }
        if outcomes.is_empty() {
            continue;
        }
        let mut applying = pin!(retry_contended(|| apply_outcomes(outbox, definition, step, &outcomes)));
        // The other calls make progress meanwhile, because their time limits run.
        let applied = loop {
            tokio::select! {
                biased;
                applied = &mut applying => break applied?,
                Some(next) = asked.next() => answered.push(next),
            }
        };
        committed = committed.and(applied);
    }
}

async fn prepare<S: ThreePhases>(
    outbox: &Outbox,
    definition: &'static SagaDefinition,
    step: &S,
    deliveries: &[Delivery<S::Event>],
) -> Prepared<S::Question, S::Answer> {
    let event_ids: Vec<Uuid> = deliveries.iter().map(|delivery| delivery.meta.event_id).collect();
    let mut tx = StepTransaction::begin(outbox, definition, step.step()).await?;
    let processed = inbox::already_processed(tx.conn(), &step.step().consumer(), &event_ids).await?;
    let reopened = match definition.is_after_pivot(step.step()) {
        true => {
            let saga_ids: Vec<Uuid> = deliveries.iter().filter_map(|delivery| delivery.meta.saga_id()).collect();
            query::reopened(tx.conn(), &saga_ids).await?
        }
        false => Vec::new(),
    };
    let not_asked = |delivery: &Delivery<S::Event>| {
        let repeated = processed.contains(&delivery.meta.event_id).then_some("a repeated delivery");
        repeated.or_else(|| delivery.meta.saga_id().filter(|saga_id| reopened.contains(saga_id)).map(|_| REOPENED))
    };
    let fresh: Vec<_> = deliveries.iter().filter(|delivery| not_asked(delivery).is_none()).collect();
    let mut prepared = step.prepare(&mut tx, &fresh).await?.into_iter();
    tx.commit_intent().await?;
    let next = deliveries.iter().map(|delivery| match not_asked(delivery) {
        Some(reason) => Ok(Next::Apply(Outcome::NotAsked(reason))),
        None => prepared.next().ok_or_else(|| StepError::failed("the prepare phase left out a delivery")),
    });
    next.collect()
}

async fn ask<S: ThreePhases>(
    outbox: &Outbox,
    step: &S,
    delivery: Delivery<S::Event>,
    next: Next<S::Question, S::Answer>,
) -> (Delivery<S::Event>, Result<Outcome<S::Answer>, StepError>) {
    let question = match next {
        Next::Apply(outcome) => return (delivery, Ok(outcome)),
        Next::Ask(question) => question,
    };
    if outbox.would_call(S::WOULD_ASK) {
        return (delivery, Err(StepError::unavailable("a dry run makes no calls")));
    }
    let answer = step.ask(question, &delivery.meta.context()).await;
    (delivery, answer.map(Outcome::Answer))
}

/// One transaction for the deliveries whose outcomes are known.
async fn apply_outcomes<S: ThreePhases>(
    outbox: &Outbox,
    definition: &'static SagaDefinition,
    step: &S,
    outcomes: &[DeliveryOutcome<S::Event, S::Answer>],
) -> StepResult {
    let by_event: HashMap<Uuid, &Outcome<S::Answer>> = outcomes.iter().map(|(d, o)| (d.meta.event_id, o)).collect();
    let batch = Batch::new(&step.step().step, outcomes.iter().map(|(delivery, _)| delivery.clone()).collect());
    let (mut tx, deliveries) = StepTransaction::claim(outbox, definition, step.step(), batch).await?;
    let with_outcome = |delivery: Delivery<S::Event>| {
        let outcome = by_event.get(&delivery.meta.event_id).copied().cloned()?;
        Some((delivery, outcome))
    };
    let fresh: Vec<_> = deliveries.into_iter().filter_map(with_outcome).collect();
    step.apply_outcomes(&mut tx, &fresh).await?;
    tx.commit().await
}
