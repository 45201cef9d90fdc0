//! The step transaction. It claims the inbox, locks the sagas, and requires exactly one answer for each of its causes. An
//! answer publishes an event, journals the step and applies the saga's transition, in one call. So every published event is
//! journalled (except for purged sagas), and a transaction with an unanswered or twice answered cause is not committed.

use std::{collections::HashMap, sync::Arc};

use messaging::{Batch, ClaimedWork, Context, Delivery, Metrics, Outbox, StepError, StepResult, UnitOfWork};
use saga::{Event, Kind, Refusal, SagaDefinition, SagaState, Status, Step, StepOn, StepStatus, Transition, Trigger};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    cause::Cause,
    compensation::Overdue,
    instance::{NewSaga, Recorded, Sagas},
    timeout::DueSaga,
};

/// The reason for skipping a forward step of a saga that does not move forward any more.
const TOO_LATE: &str = "the saga does not move forward any more";
/// What the journal has for an event where a coordinator takes the step.
const COMMAND: &str = "command";
/// The reason for skipping a step after the pivot of a saga that was reopened.
pub(crate) const REOPENED: &str = "the saga is no longer COMPLETED";

/// The transaction of one step, for one or many causes. Dropped, it is rolled back. Each answer takes its event's `sequence`: its
/// number among the events of its aggregate, as in [`UnitOfWork::publish`](messaging::UnitOfWork::publish).
#[derive(Debug)]
pub struct StepTransaction<C> {
    work: ClaimedWork,
    step: &'static Step,
    sagas: Sagas,
    causes: Arc<[C]>,
    /// For each cause the number of missing answers; negative when there were too many.
    missing: HashMap<Uuid, i32>,
    deferred: Vec<(Uuid, StepError)>,
}

/// A defect in a step's answers. Nothing is committed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    #[error("{step} has not answered {cause}")]
    Missing { step: &'static str, cause: Uuid },
    #[error("{step} has answered {cause} more than once, or it is none of its causes")]
    TooMany { step: &'static str, cause: Uuid },
    #[error("the kind of {step} does not allow {transition:?}")]
    NotOfItsKind { step: &'static str, transition: Transition },
    #[error("{step} publishes the refusal {event}, but does not refuse")]
    Refusal { step: &'static str, event: &'static str },
}

impl StepTransaction<()> {
    /// The transaction of a step that a request or a deadline triggers. Nothing is locked yet.
    pub async fn begin(
        outbox: &Outbox,
        definition: &'static SagaDefinition,
        step: &'static Step,
    ) -> Result<Self, sqlx::Error> {
        let sagas = Sagas::new(definition, outbox.service());
        let work = outbox.begin_step(step).await?;
        Ok(StepTransaction { work, step, sagas, causes: Arc::from([]), missing: HashMap::new(), deferred: Vec::new() })
    }

    /// Starts a saga about `business_key`, with its first event. `context` is that of the request.
    pub fn start<E: Event>(
        &mut self,
        saga_id: Uuid,
        business_key: Uuid,
        context: Context,
        event: &E,
    ) -> Result<(), StepError> {
        let context = context.in_saga(saga_id, self.sagas.definition().saga_type);
        let first_event_id = self.work.publish(self.step, &context, 1, event)?;
        self.sagas.begin(self.step, E::TYPE.wire_name(), NewSaga { saga_id, business_key, first_event_id, context });
        Ok(())
    }

    /// Starts an orchestrated saga, which publishes nothing.
    pub fn start_orchestrated(&mut self, saga_id: Uuid, business_key: Uuid, context: Context) {
        let context = context.in_saga(saga_id, self.sagas.definition().saga_type);
        self.work.concerns(&context, self.step);
        // No event began it, so its own id stands for that of the request.
        let saga = NewSaga { saga_id, business_key, first_event_id: saga_id, context };
        self.sagas.begin(self.step, COMMAND.to_owned(), saga);
    }

    /// Locks the sagas of these causes; each cause must be answered afterwards.
    pub async fn lock<C: Cause>(self, causes: Vec<C>) -> Result<StepTransaction<C>, StepError> {
        let StepTransaction { mut work, step, mut sagas, .. } = self;
        sagas.lock(work.conn(), causes.iter().filter_map(C::saga_id)).await?;
        Ok(StepTransaction { work, step, sagas, missing: count(&causes), causes: causes.into(), deferred: Vec::new() })
    }

    /// Commits without answers, for example the intent to call another system.
    pub(crate) async fn commit_intent(self) -> Result<(), StepError> {
        if self.sagas.has_anything() {
            return Err(StepError::failed("an intent must not start a saga or publish an event"));
        }
        Ok(self.work.into_unclaimed().commit_intent().await?)
    }
}

fn count<C: Cause>(causes: &[C]) -> HashMap<Uuid, i32> {
    let mut missing = HashMap::with_capacity(causes.len());
    for cause in causes {
        *missing.entry(cause.id()).or_default() += 1;
    }
    missing
}

impl<E: Event> StepTransaction<Delivery<E>> {
    /// Claims the inbox for the batch, and locks its sagas. Duplicates are left out. Deliveries of a compensatable step whose
    /// saga does not move forward any more are skipped, and so are those of an owed step whose saga was reopened.
    pub async fn take(
        outbox: &Outbox,
        definition: &'static SagaDefinition,
        step: &'static StepOn<E>,
        batch: Batch<E>,
    ) -> Result<Self, StepError> {
        let (mut tx, deliveries) = Self::claim(outbox, definition, step, batch).await?;
        let is_compensatable = matches!(step.kind, Kind::Compensatable { .. });
        let (late, timely): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|delivery| is_compensatable && !tx.moves_forward(delivery));
        for delivery in &late {
            tx.skip(delivery, TOO_LATE)?;
        }
        let is_owed = definition.is_after_pivot(step);
        let (reopened, timely): (Vec<_>, Vec<_>) =
            timely.into_iter().partition(|delivery| is_owed && tx.is_reopened(delivery));
        for delivery in &reopened {
            tx.skip(delivery, REOPENED)?;
        }
        tx.causes = timely.into();
        Ok(tx)
    }

    /// The same without skipping, and the deliveries to be answered.
    pub(crate) async fn claim(
        outbox: &Outbox,
        definition: &'static SagaDefinition,
        step: &'static StepOn<E>,
        batch: Batch<E>,
    ) -> Result<(Self, Vec<Delivery<E>>), StepError> {
        if batch.step().name != step.step.name {
            return Err(StepError::failed(format!("{} received a batch of {}", step.step.name, batch.step().name)));
        }
        let (mut work, deliveries) = outbox.claim(batch).await?;
        if deliveries.iter().any(|delivery| delivery.meta.saga_id().is_none()) {
            return Err(outside_saga());
        }
        let mut sagas = Sagas::new(definition, outbox.service());
        sagas.lock(work.conn(), deliveries.iter().filter_map(Delivery::saga_id)).await?;
        let (step, missing, causes) = (&step.step, count(&deliveries), Arc::from([]));
        Ok((StepTransaction { work, step, sagas, causes, missing, deferred: Vec::new() }, deliveries))
    }

    /// The deliveries, each of which must be answered; all belong to a saga.
    pub fn deliveries(&self) -> Arc<[Delivery<E>]> {
        self.causes()
    }

    /// A forward step is done.
    pub fn advance<A: Event>(&mut self, delivery: &Delivery<E>, sequence: i64, event: &A) -> Result<(), StepError> {
        let transition = Transition::Advance { step: self.step.number };
        self.publish_answer(delivery, sequence, event, (StepStatus::Completed, transition, None))
    }

    /// The step refuses, for a business reason.
    pub fn refuse<A: Refusal>(&mut self, delivery: &Delivery<E>, sequence: i64, event: &A) -> Result<(), StepError> {
        self.publish_answer(delivery, sequence, event, (StepStatus::Failed, Transition::Stay, Some(event.reason())))
    }

    /// The pivot is done, and the saga with it.
    pub fn complete<A: Event>(&mut self, delivery: &Delivery<E>, sequence: i64, event: &A) -> Result<(), StepError> {
        let transition = Transition::Complete { step: self.step.number };
        self.publish_answer(delivery, sequence, event, (StepStatus::Completed, transition, None))
    }

    /// This service's steps of the saga are undone: publishes its receipt.
    pub fn undone<A: Event>(&mut self, delivery: &Delivery<E>, sequence: i64, event: &A) -> Result<(), StepError> {
        let transition = Transition::Receipt { from: self.sagas.service() };
        self.publish_answer(delivery, sequence, event, (StepStatus::Compensated, transition, None))
    }

    /// A retriable step is done; the saga's status does not change, and a step after its pivot is no longer owed.
    /// If the saga was reopened while its step after the pivot was running, the step is skipped and publishes nothing.
    pub fn done<A: Event>(&mut self, delivery: &Delivery<E>, sequence: i64, event: &A) -> Result<(), StepError> {
        let transition = match self.definition().is_after_pivot(self.step) {
            true if self.is_reopened(delivery) => return self.skip(delivery, REOPENED),
            true => Transition::Fulfil { step: self.step.number, by: self.sagas.service() },
            false => Transition::Stay,
        };
        self.publish_answer(delivery, sequence, event, (StepStatus::Completed, transition, None))
    }

    /// Excludes a delivery that cannot be answered from this transaction; `error` decides how it is handled, as if it had been
    /// delivered alone. The others of its batch are not delayed.
    pub fn defer(&mut self, delivery: &Delivery<E>, error: StepError) {
        self.deferred.push((delivery.meta.event_id, error));
        self.answered(delivery);
    }

    /// The delivery is too late, and changes nothing.
    pub fn skip(&mut self, delivery: &Delivery<E>, reason: &str) -> Result<(), StepError> {
        self.work.refused_by_state(reason);
        let entry = (StepStatus::Skipped, Transition::Stay, Some(reason.to_owned()));
        self.answer(delivery, E::TYPE.wire_name(), entry, |_, _| Ok(None))
    }
}

/// The saga of a delivery that a step transaction has claimed.
///
/// # Errors
/// [`StepError::Poison`] for an event of no saga; a step transaction does not claim such an event.
pub fn saga_of<E>(delivery: &Delivery<E>) -> Result<Uuid, StepError> {
    delivery.meta.saga_id().ok_or_else(outside_saga)
}

/// The error of an event whose header names no saga.
pub(crate) fn outside_saga() -> StepError {
    StepError::Poison("the event belongs to no saga".into())
}

/// The journal's status of an answer, the saga's transition, and the reason.
type Entry = (StepStatus, Transition, Option<String>);

impl<C: Cause> StepTransaction<C> {
    /// The causes, each of which must be answered.
    pub fn causes(&self) -> Arc<[C]> {
        Arc::clone(&self.causes)
    }

    /// The saga's status; none when there is no such saga (any more).
    pub fn status(&self, cause: &C) -> Option<Status> {
        self.sagas.status(cause.saga_id())
    }

    pub fn moves_forward(&self, cause: &C) -> bool {
        self.status(cause).is_some_and(Status::moves_forward)
    }

    /// The saga's state, with the transitions that this transaction has made.
    pub fn state(&self, cause: &C) -> Option<&SagaState> {
        self.sagas.state(cause.saga_id())
    }

    /// Records a transition of an orchestrated saga; publishes nothing. A transaction may make several of one saga.
    pub fn record(
        &mut self,
        cause: &C,
        step: &'static Step,
        (status, transition): (StepStatus, Transition),
        reason: Option<String>,
    ) -> Result<(), StepError> {
        if !step.kind.allows(transition) {
            return Err(StepError::failed(AnswerError::NotOfItsKind { step: step.name, transition }));
        }
        let context = cause.context(&self.sagas);
        self.work.concerns(&context, step);
        let recorded = Recorded { step, status, transition, event_type: COMMAND.to_owned(), reason };
        self.sagas.record(&context, recorded, || Ok(None))?;
        // The first transition is the answer.
        if self.missing.get(&cause.id()) == Some(&1) {
            self.answered(cause);
        }
        Ok(())
    }

    /// Leaves the saga unchanged this time.
    pub fn leave(&mut self, cause: &C) {
        self.answered(cause);
    }

    /// How often the saga's compensation was tried again.
    pub fn compensation_attempts(&self, cause: &C) -> u16 {
        self.sagas.compensation_attempts(cause.saga_id())
    }

    fn is_reopened(&self, cause: &C) -> bool {
        self.status(cause).is_some_and(|now| now != Status::Completed)
    }

    /// Whether a numbered step after the pivot is done: then the saga cannot be compensated any more.
    pub fn is_past_pivot(&self, cause: &C) -> bool {
        self.sagas.is_past_pivot(cause.saga_id())
    }

    /// Starts the compensation: all steps are to be undone, and each participant owes a receipt. A completed saga is compensated
    /// only on its customer's request.
    pub fn compensate<A: Event>(&mut self, cause: &C, sequence: i64, event: &A, reason: &str) -> Result<(), StepError> {
        let by_customer = self.step.on == Trigger::Http;
        let entry = (StepStatus::Completed, Transition::Compensate { by_customer }, Some(reason.to_owned()));
        self.publish_answer(cause, sequence, event, entry)
    }

    fn publish_answer<A: Event>(&mut self, cause: &C, sequence: i64, event: &A, entry: Entry) -> Result<(), StepError> {
        let step = self.step;
        if A::TYPE.refusal && entry.0 != StepStatus::Failed {
            return Err(StepError::failed(AnswerError::Refusal { step: step.name, event: A::TYPE.name }));
        }
        self.answer(cause, A::TYPE.wire_name(), entry, |work, context| {
            Ok(Some(work.publish(step, context, sequence, event)?))
        })
    }

    /// The only place where a step publishes and records.
    fn answer(
        &mut self,
        cause: &C,
        event_type: String,
        (status, transition, reason): Entry,
        publish: impl FnOnce(&mut UnitOfWork, &Context) -> Result<Option<Uuid>, StepError>,
    ) -> Result<(), StepError> {
        if !self.step.kind.allows(transition) {
            return Err(StepError::failed(AnswerError::NotOfItsKind { step: self.step.name, transition }));
        }
        let context = cause.context(&self.sagas);
        let recorded = Recorded { step: self.step, status, transition, event_type, reason };
        let work = &mut self.work;
        self.sagas.record(&context, recorded, || publish(work, &context))?;
        self.answered(cause);
        Ok(())
    }

    fn answered(&mut self, cause: &C) {
        *self.missing.entry(cause.id()).or_default() -= 1;
    }
}

impl StepTransaction<DueSaga> {
    /// The saga's deadline has passed.
    pub(crate) fn time_out<A: Event>(&mut self, due: &DueSaga, event: &A) -> Result<(), StepError> {
        let reason = format!("no end by the deadline, after step {}", due.current_step);
        // The timeout's aggregate is the saga, so its sequence is the next position in the journal.
        let sequence = due.next_version();
        self.publish_answer(due, sequence, event, (StepStatus::Failed, Transition::TimeOut, Some(reason)))
    }
}

/// A saga whose compensation is overdue, or resumed by an operator, is retried, given up or left unchanged.
impl StepTransaction<Overdue> {
    /// Publishes the cancellation again.
    pub fn retry_compensation<A: Event>(
        &mut self,
        saga: &Overdue,
        sequence: i64,
        event: &A,
        reason: String,
    ) -> Result<(), StepError> {
        self.publish_answer(saga, sequence, event, (StepStatus::Completed, Transition::RetryCompensation, Some(reason)))
    }

    /// The same on behalf of an operator; resets the number of retries.
    pub fn resume<A: Event>(&mut self, saga: &Overdue, sequence: i64, event: &A, why: String) -> Result<(), StepError> {
        self.publish_answer(saga, sequence, event, (StepStatus::Completed, Transition::Resume, Some(why)))
    }

    /// The retries are exhausted; operator action required.
    pub fn give_up(&mut self, saga: &Overdue, reason: String) -> Result<(), StepError> {
        let unpublished = self.step.emits.first().map(|event| event.wire_name()).unwrap_or_default();
        let entry = (StepStatus::Failed, Transition::GiveUp, Some(reason));
        self.answer(saga, unpublished, entry, |_, _| Ok(None))
    }
}

impl<C> StepTransaction<C> {
    pub(crate) fn definition(&self) -> &'static SagaDefinition {
        self.sagas.definition()
    }

    pub fn conn(&mut self) -> &mut PgConnection {
        self.work.conn()
    }

    /// Runs `count` if and when this step is committed; a dry run counts nothing.
    pub fn after_commit(&mut self, count: impl FnOnce(&Metrics) + Send + 'static) {
        self.work.after_commit(count);
    }

    /// Writes sagas, journal and outbox, and commits.
    ///
    /// # Errors
    /// [`AnswerError`] when a cause is left unanswered, or answered more than once; nothing is committed then.
    pub async fn commit(self) -> StepResult {
        let StepTransaction { mut work, step, sagas, missing, deferred, .. } = self;
        if let Some((cause, missing)) = missing.into_iter().find(|(_, missing)| *missing != 0) {
            let step = step.name;
            return Err(StepError::failed(match missing {
                1.. => AnswerError::Missing { step, cause },
                _ => AnswerError::TooMany { step, cause },
            }));
        }
        sagas.save(&mut work).await?;
        work.commit_without(deferred).await
    }

    /// Ends a step that changes nothing, and releases its locks. Where there is a synchronous standby, it has what was read: only
    /// then may a request that is repeated be answered as it was the first time.
    ///
    /// # Errors
    /// When a saga was started or a cause answered.
    pub async fn commit_unchanged(self) -> Result<(), StepError> {
        if self.sagas.has_anything() {
            return Err(StepError::failed("a step that changes nothing must not start a saga or answer a cause"));
        }
        Ok(self.work.into_unclaimed().commit_read().await?)
    }
}
