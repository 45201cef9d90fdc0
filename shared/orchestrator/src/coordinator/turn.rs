//! One turn of a saga: its state is read, the next command given, and the transition stored that the answer makes.

use std::time::Duration;

use messaging::{StepError, retry_contended};
use resilience::Permit;
use saga::{SagaState, Status, Step};
use saga_store::{Request, StepTransaction};
use tokio::{
    sync::SemaphorePermit,
    time::{Instant, timeout},
};
use uuid::Uuid;

use super::{Commanded, Coordinated, Coordinator, Failure, Outcome};
use crate::{
    Effect, Entry, Next, Orchestration, Reply, Turn,
    coordination::{self, Kept, Position},
};

/// An attempt at a command takes at most this share of the step's limit, so that a lost one is repeated.
const ATTEMPTS_IN_LIMIT: u32 = 3;

/// Where a saga stands after a turn.
pub(super) enum Stand {
    Goes,
    /// For an operator, too, if it has FAILED.
    Ended(Status),
    /// Another replica drives it, or nobody until a deadline, or it is gone.
    Lost,
}

impl<S: Coordinated> Coordinator<S> {
    /// One turn: the next command, and the transition that its answer makes. No connection is held while the command is on its way.
    pub(super) async fn turn(&self, saga_id: Uuid) -> Result<Stand, StepError> {
        let definition = self.orchestration.definition;
        let connection = self.connections.one().await?;
        let position = self.in_time(coordination::read(&self.pool, definition, saga_id, self.replica)).await?;
        let Some(Position { business_key, state, context, step_left, left }) = position else {
            return Ok(Stand::Lost);
        };
        let read = Instant::now();
        let saga = Commanded { saga_id, business_key, context };
        let next = self.orchestration.next(&state, left.is_some_and(|left| left.is_zero()));
        let command = match next {
            Next::Command(step) => Some((step, self.in_time(self.business.prepare(step, &saga)).await?)),
            Next::TimeOut | Next::Retry | Next::Rest => None,
        };
        drop(connection);
        let reply = match command {
            Some((step, command)) => {
                let left = if state.status.moves_forward() { left } else { None };
                let limit = self.limit(step).min(step_left.unwrap_or(Duration::MAX)).min(left.unwrap_or(Duration::MAX));
                Some((step, self.command(step, &saga, &command, limit).await))
            }
            None => None,
        };
        let is_late = left.is_some_and(|left| read.elapsed() >= left);
        let decide = |state: &SagaState, attempts: u16| match (&next, &reply) {
            (Next::TimeOut, _) => self.orchestration.timed_out(state),
            (Next::Retry, _) => self.orchestration.overdue(state, attempts),
            // The saga's deadline has ended the wait.
            (_, Some((_, Reply::None(_)))) if is_late && state.status.moves_forward() => {
                self.orchestration.timed_out(state)
            }
            (_, Some((step, reply))) => self.orchestration.answered(state, step, reply),
            (_, None) => Turn::NOTHING,
        };
        let waits = reply.as_ref().is_some_and(|(step, reply)| step.is_compensation() && *reply != Reply::Done);
        // A retry waits again, behind the other sagas.
        let store = async || {
            let _connection = self.connections.one().await?;
            self.store(&saga, waits, &decide).await
        };
        retry_contended(store).await
    }

    /// Stores the transitions that `decide` makes of the locked saga, with their effect, and what becomes of the saga. `waits`:
    /// an undo was not answered.
    async fn store(
        &self,
        saga: &Commanded,
        waits: bool,
        decide: &(impl Fn(&SagaState, u16) -> Turn + Sync),
    ) -> Result<Stand, StepError> {
        let Orchestration { definition, .. } = self.orchestration;
        let request = Request { saga_id: saga.saga_id, context: saga.context.clone() };
        let as_step = self.orchestration.as_step();
        let mut tx =
            StepTransaction::begin(&self.outbox, definition, as_step).await?.lock(vec![request.clone()]).await?;
        let Some(state) = tx.state(&request).cloned() else { return Ok(Stand::Lost) };
        let Turn { entries, effect } = decide(&state, tx.compensation_attempts(&request));
        if entries.is_empty() {
            tx.leave(&request);
        }
        for entry in entries {
            record(&mut tx, &request, entry)?;
        }
        let state = tx.state(&request).cloned().unwrap_or(state);
        if effect != Effect::Nothing {
            self.business.apply(&mut tx, saga, &effect).await?;
        }
        let (kept, stand) = match (self.orchestration.next(&state, false), state.status) {
            (Next::Command(_), Status::Compensating) if waits => {
                (Kept::Waiting(definition.compensation.deadline), Stand::Lost)
            }
            (Next::Command(step), _) => (Kept::Driven(self.limit(step)), Stand::Goes),
            (_, Status::Failed) => (Kept::Parked, Stand::Ended(Status::Failed)),
            (_, status) => (Kept::Ended, Stand::Ended(status)),
        };
        // Otherwise everything is rolled back.
        if !coordination::keep(tx.conn(), saga.saga_id, self.replica, kept).await? {
            return Ok(Stand::Lost);
        }
        tx.commit().await?;
        Ok(stand)
    }

    /// Commands the step, repeatedly until it is answered or the limit has passed.
    async fn command(&self, step: &'static Step, saga: &Commanded, command: &S::Command, limit: Duration) -> Reply {
        let breaker = self.breakers.of(step);
        let whole = self.limit(step) / ATTEMPTS_IN_LIMIT;
        let began = Instant::now();
        let left = || limit.saturating_sub(began.elapsed());
        let attempt = || async {
            let not_admitted = |why: String| {
                self.count(step, "not_admitted");
                Failure::Transient(why)
            };
            let place = timeout(left(), self.place_of(step)).await;
            let _place = place.map_err(|_| not_admitted("too many others command it".to_owned()))?;
            let permit = breaker.admit().map_err(|open| not_admitted(open.to_string()))?;
            let limit = whole.min(left());
            let answer = timeout(limit, self.business.command(step, saga, command)).await.ok();
            let outcome = match &answer {
                Some(Ok(Reply::Done)) => "done",
                Some(Ok(_)) => "refused",
                Some(Err(_)) | None => "failed",
            };
            self.count(step, outcome);
            report(permit, answer, limit, whole)
        };
        let retry = (self.settings.policy)(step).retry;
        match resilience::retry(&retry, limit, |failure| matches!(failure, Failure::Transient(_)), attempt).await {
            Ok(reply) => reply,
            Err(Failure::Transient(why) | Failure::Permanent(why)) => {
                Reply::None(format!("{} was not answered: {why}", step.name))
            }
        }
    }

    async fn place_of(&self, step: &Step) -> Option<SemaphorePermit<'_>> {
        self.commands.get(step.name)?.one().await.ok()
    }

    pub(super) fn limit(&self, step: &Step) -> Duration {
        (self.settings.policy)(step).time_limit
    }

    fn count(&self, step: &Step, outcome: &'static str) {
        self.metrics.commands.get_or_create_owned(&Outcome { step: step.name, outcome }).inc();
    }
}

pub(super) fn record(tx: &mut StepTransaction<Request>, saga: &Request, entry: Entry) -> Result<(), StepError> {
    let Entry { step, status, transition, reason } = entry;
    tx.record(saga, step, (status, transition), reason)
}

/// Reports an attempt at a command to the breaker, and returns what came of it. `answer`: none within `limit`, which is
/// shorter than a `whole` attempt when the step's limit leaves less.
fn report(
    permit: Permit,
    answer: Option<Result<Reply, Failure>>,
    limit: Duration,
    whole: Duration,
) -> Result<Reply, Failure> {
    let (failure, cut_short) = match answer {
        Some(Ok(reply)) => {
            permit.success();
            return Ok(reply);
        }
        Some(Err(failure)) => (failure, false),
        None => (Failure::Transient(format!("no answer within {limit:.1?}")), limit < whole),
    };
    match &failure {
        // A wait that was cut short says nothing about the participant, and neither does an answer.
        Failure::Transient(why) if !cut_short => permit.failure(why),
        Failure::Transient(_) | Failure::Permanent(_) => permit.ignored(),
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use resilience::{Breakers, Counts, Overrides};
    use saga::{Kind, Service};

    use super::*;

    static STEP: Step = Step::on_command(2, "process_payment", Service("payment"), Kind::Retriable);

    const WHOLE: Duration = Duration::from_secs(2);
    /// What an earlier attempt, or the wait for a place, has left of it.
    const REST: Duration = Duration::from_millis(1_999);

    /// What a breaker counts of one attempt.
    fn counted(answer: Option<Result<Reply, Failure>>, limit: Duration) -> Counts {
        let breaker = Breakers::new(true, Overrides::default()).of(&STEP);
        let permit = breaker.admit().expect("it is closed");
        let has_replied = matches!(answer, Some(Ok(_)));
        assert_eq!(report(permit, answer, limit, WHOLE).is_ok(), has_replied);
        breaker.snapshot().counts
    }

    #[test]
    fn a_breaker_counts_every_failure_but_a_wait_cut_short() {
        let nothing = Counts::default();
        let (success, failure) = (Counts { succeeded: 1, ..nothing }, Counts { failed: 1, ..nothing });
        let ignored = Counts { ignored: 1, ..nothing };
        assert_eq!(counted(None, WHOLE), failure);
        assert_eq!(counted(None, REST), ignored);
        for limit in [WHOLE, REST] {
            // At once: answered 503, or the connection refused.
            let failed = Failure::Transient("the participant answered 503".to_owned());
            assert_eq!(counted(Some(Err(failed)), limit), failure, "a failure within {limit:?}");
            let unreadable = Failure::Permanent("the participant answered 422".to_owned());
            assert_eq!(counted(Some(Err(unreadable)), limit), ignored, "an answer within {limit:?}");
            for reply in [Reply::Done, Reply::Refused("card_declined".to_owned())] {
                assert_eq!(counted(Some(Ok(reply)), limit), success, "a reply within {limit:?}");
            }
        }
    }
}
