//! The step transaction. It claims the inbox, locks the sagas, and wants each of its causes answered exactly once. An answer
//! publishes an event, journals the step and moves the saga, all in one call: what is published is journalled (but for
//! sagas that are kept no longer), and what is left unanswered, or answered twice, is not committed.

use std::{collections::HashMap, sync::Arc};

use messaging::{Batch, ClaimedWork, Context, Delivery, Metrics, Outbox, StepError, StepResult, UnitOfWork};
use saga::{Event, Kind, Refusal, SagaDefinition, Status, Step, StepOn, StepStatus, Transition, Trigger};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    cause::Cause,
    compensation::Overdue,
    instance::{NewSaga, Recorded, Sagas},
    timeout::DueSaga,
};

/// Why a step that would have come too late is skipped before anything is looked up for it.
const TOO_LATE: &str = "the saga does not move forward any more";
/// Why a step behind the pivot is.
const REOPENED: &str = "the saga has turned back since it was completed";

/// The transaction of one step, for one or many causes. Dropped, it is rolled back.
#[derive(Debug)]
pub struct StepTransaction<C> {
    work: ClaimedWork,
    step: &'static Step,
    sagas: Sagas,
    causes: Arc<[C]>,
    /// For each cause how many answers are still missing; below zero there were too many.
    missing: HashMap<Uuid, i32>,
}

/// Why a step transaction cannot be committed: a defect of the step.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("{step} has not answered {cause}")]
    Missing { step: &'static str, cause: Uuid },
    #[error("{step} has answered {cause} more than once, or was not asked")]
    TooMany { step: &'static str, cause: Uuid },
}

impl StepTransaction<()> {
    /// The transaction of a step that a request or a deadline sets in motion. Nothing is locked yet.
    pub async fn begin(
        outbox: &Outbox,
        definition: &'static SagaDefinition,
        step: &'static Step,
    ) -> Result<Self, sqlx::Error> {
        let sagas = Sagas::new(definition, outbox.service());
        let work = outbox.begin_step(step).await?;
        Ok(StepTransaction { work, step, sagas, causes: Arc::from([]), missing: HashMap::new() })
    }

    /// Begins a saga, which is about `business_key`, with its first event. `context` is that of the request.
    pub fn start<E: Event>(
        &mut self,
        saga_id: Uuid,
        business_key: Uuid,
        context: Context,
        event: &E,
    ) -> Result<(), StepError> {
        let context = context.in_saga(saga_id, self.sagas.definition().saga_type);
        let first_event_id = self.work.publish(self.step, &context, 1, event)?;
        self.sagas.begin(self.step, E::TYPE, NewSaga { saga_id, business_key, first_event_id, context });
        Ok(())
    }

    /// Locks the sagas of these causes, each of which has to be answered then.
    pub async fn lock<C: Cause>(self, causes: Vec<C>) -> Result<StepTransaction<C>, StepError> {
        let StepTransaction { mut work, step, mut sagas, .. } = self;
        sagas.lock(work.conn(), causes.iter().filter_map(C::saga_id)).await?;
        Ok(StepTransaction { work, step, sagas, missing: count(&causes), causes: causes.into() })
    }

    /// Commits what answers nothing, such as the intent to ask another system.
    pub(crate) async fn commit_intent(self) -> Result<(), StepError> {
        if self.sagas.has_anything() {
            return Err(StepError::failed("an intent begins no saga and publishes nothing"));
        }
        Ok(self.work.into_unclaimed().commit_intent().await?)
    }

    /// Gives up all that was done, and its locks, now; dropping does so some time later.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        self.work.into_unclaimed().rollback().await
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
    /// Claims the inbox for the batch, and locks its sagas. What the step has had before is left out; what could be
    /// compensated later is skipped at once where the saga has turned back meanwhile.
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
        let is_owed = definition.is_behind_pivot(step);
        let (reopened, timely): (Vec<_>, Vec<_>) =
            timely.into_iter().partition(|d| is_owed && tx.status(d).is_some_and(|now| now != Status::Completed));
        for delivery in &reopened {
            tx.skip(delivery, REOPENED)?;
        }
        tx.causes = timely.into();
        Ok(tx)
    }

    /// The same without skipping any, and what is to be answered.
    pub(crate) async fn claim(
        outbox: &Outbox,
        definition: &'static SagaDefinition,
        step: &'static StepOn<E>,
        batch: Batch<E>,
    ) -> Result<(Self, Vec<Delivery<E>>), StepError> {
        if batch.step().name != step.step.name {
            return Err(StepError::failed(format!("a batch of {} was given to {}", batch.step().name, step.step.name)));
        }
        let (mut work, deliveries) = outbox.claim(batch).await?;
        if deliveries.iter().any(|delivery| delivery.meta.saga_id().is_none()) {
            return Err(outside());
        }
        let mut sagas = Sagas::new(definition, outbox.service());
        sagas.lock(work.conn(), deliveries.iter().filter_map(Delivery::saga_id)).await?;
        let (step, missing, causes) = (&step.step, count(&deliveries), Arc::from([]));
        Ok((StepTransaction { work, step, sagas, causes, missing }, deliveries))
    }

    /// Each of them has to be answered; all are of a saga.
    pub fn deliveries(&self) -> Arc<[Delivery<E>]> {
        self.causes()
    }

    /// One more step on the way forward is done.
    pub fn advance<A: Event>(&mut self, delivery: &Delivery<E>, version: i64, event: &A) -> Result<(), StepError> {
        let transition = Transition::Advance { step: self.step.number };
        self.say(delivery, version, event, (StepStatus::Completed, transition, None))
    }

    /// The step says no, for a business reason.
    pub fn refuse<A: Refusal>(&mut self, delivery: &Delivery<E>, version: i64, event: &A) -> Result<(), StepError> {
        self.say(delivery, version, event, (StepStatus::Failed, Transition::Stay, Some(event.reason())))
    }

    /// The pivot is done, and the saga with it.
    pub fn complete<A: Event>(&mut self, delivery: &Delivery<E>, version: i64, event: &A) -> Result<(), StepError> {
        let transition = Transition::Complete { step: self.step.number };
        self.say(delivery, version, event, (StepStatus::Completed, transition, None))
    }

    /// What this service did for the saga is undone: its receipt.
    pub fn undone<A: Event>(&mut self, delivery: &Delivery<E>, version: i64, event: &A) -> Result<(), StepError> {
        let transition = Transition::Receipt { from: self.sagas.service() };
        self.say(delivery, version, event, (StepStatus::Compensated, transition, None))
    }

    /// A step beside or behind the way forward is done; the saga stays where it is, and owes a step behind its pivot no more.
    pub fn done<A: Event>(&mut self, delivery: &Delivery<E>, version: i64, event: &A) -> Result<(), StepError> {
        let transition = match self.definition().is_behind_pivot(self.step) {
            true => Transition::Fulfil { step: self.step.number, by: self.sagas.service() },
            false => Transition::Stay,
        };
        self.say(delivery, version, event, (StepStatus::Completed, transition, None))
    }

    /// The delivery came too late, and changes nothing.
    pub fn skip(&mut self, delivery: &Delivery<E>, reason: &str) -> Result<(), StepError> {
        self.work.refused_by_state(reason);
        let said = (StepStatus::Skipped, Transition::Stay, Some(reason.to_owned()));
        self.answer(delivery, E::TYPE.wire_name(), said, |_, _| Ok(None))
    }
}

/// Nobody publishes a saga's events outside one.
pub(crate) fn outside() -> StepError {
    StepError::Poison("the event belongs to no saga".into())
}

/// How the journal has an answer, what it makes of the saga, and why.
type Said = (StepStatus, Transition, Option<String>);

impl<C: Cause> StepTransaction<C> {
    /// Each of them has to be answered.
    pub fn causes(&self) -> Arc<[C]> {
        Arc::clone(&self.causes)
    }

    /// Where the saga stands; none when it is not known (any more).
    pub fn status(&self, cause: &C) -> Option<Status> {
        self.sagas.status(cause.saga_id())
    }

    pub fn moves_forward(&self, cause: &C) -> bool {
        self.status(cause).is_some_and(Status::moves_forward)
    }

    /// Whether the saga went on behind its pivot: then it cannot turn back any more, whoever wishes it.
    pub fn is_past_pivot(&self, cause: &C) -> bool {
        self.sagas.is_past_pivot(cause.saga_id())
    }

    /// The saga turns back: all that was done is to be undone, and each participant owes a receipt. Only where its customer
    /// asks for it does a completed saga turn back, too.
    pub fn compensate<A: Event>(&mut self, cause: &C, version: i64, event: &A, reason: &str) -> Result<(), StepError> {
        let by_customer = self.step.on == Trigger::Http;
        let said = (StepStatus::Completed, Transition::Compensate { by_customer }, Some(reason.to_owned()));
        self.say(cause, version, event, said)
    }

    fn say<A: Event>(&mut self, cause: &C, version: i64, event: &A, said: Said) -> Result<(), StepError> {
        let step = self.step;
        self.answer(cause, A::TYPE.wire_name(), said, |work, context| {
            Ok(Some(work.publish(step, context, version, event)?))
        })
    }

    /// The only place where a step publishes and records.
    fn answer(
        &mut self,
        cause: &C,
        event_type: String,
        (status, transition, reason): Said,
        publish: impl FnOnce(&mut UnitOfWork, &Context) -> Result<Option<Uuid>, StepError>,
    ) -> Result<(), StepError> {
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
        // The timeout is about the saga itself, and the next entry in its journal.
        let version = due.next_version();
        self.say(due, version, event, (StepStatus::Failed, Transition::TimeOut, Some(reason)))
    }
}

/// A saga whose compensation is overdue, or resumed by an operator, is driven again, given up or left alone.
impl StepTransaction<Overdue> {
    /// The participants are asked once more to undo their parts.
    pub fn drive_again<A: Event>(
        &mut self,
        saga: &Overdue,
        version: i64,
        event: &A,
        reason: String,
    ) -> Result<(), StepError> {
        self.say(saga, version, event, (StepStatus::Completed, Transition::DriveAgain, Some(reason)))
    }

    /// The same on behalf of an operator; the attempts are counted anew.
    pub fn resume<A: Event>(&mut self, saga: &Overdue, version: i64, event: &A, why: String) -> Result<(), StepError> {
        self.say(saga, version, event, (StepStatus::Completed, Transition::Resume, Some(why)))
    }

    /// Nobody is asked any more; an operator has to look.
    pub fn give_up(&mut self, saga: &Overdue, reason: String) -> Result<(), StepError> {
        let unpublished = self.step.emits.first().map(|event| event.wire_name()).unwrap_or_default();
        let said = (StepStatus::Failed, Transition::GiveUp, Some(reason));
        self.answer(saga, unpublished, said, |_, _| Ok(None))
    }

    /// Nothing is done about it this time.
    pub fn leave(&mut self, saga: &Overdue) {
        self.answered(saga);
    }
}

impl<C> StepTransaction<C> {
    pub(crate) fn definition(&self) -> &'static SagaDefinition {
        self.sagas.definition()
    }

    pub fn conn(&mut self) -> &mut PgConnection {
        self.work.conn()
    }

    /// Counts something if and when this step is committed; a dry run counts nothing.
    pub fn after_commit(&mut self, count: impl FnOnce(&Metrics) + Send + 'static) {
        self.work.after_commit(count);
    }

    /// Writes sagas, journal and outbox, and commits.
    ///
    /// # Errors
    /// [`AnswerError`] when a cause is left unanswered, or answered more than once; nothing is committed then.
    pub async fn commit(self) -> StepResult {
        let StepTransaction { mut work, step, sagas, missing, .. } = self;
        if let Some((cause, missing)) = missing.into_iter().find(|(_, missing)| *missing != 0) {
            let step = step.name;
            return Err(StepError::failed(match missing {
                1.. => AnswerError::Missing { step, cause },
                _ => AnswerError::TooMany { step, cause },
            }));
        }
        sagas.save(&mut work).await?;
        work.commit().await
    }
}
