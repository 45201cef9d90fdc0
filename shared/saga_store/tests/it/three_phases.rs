//! Prepare, call, apply: no transaction is open during the call.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use messaging::{Batch, Context, Delivery, StepError};
use saga::StepOn;
use saga_store::{DeliveryOutcome, Next, Outcome, Prepared, StepTransaction, ThreePhases, three_phases};
use sqlx::PgPool;
use tokio::{sync::Notify, time::timeout};
use uuid::Uuid;

use crate::lab::{ANSWER, Answered, Asked, Declined, Lab, SAGA};

/// A remote system that answers every question but one.
struct Remote {
    pool: PgPool,
    unanswered: Option<Uuid>,
    asked: AtomicUsize,
}

impl Remote {
    fn of(lab: &Lab, unanswered: Option<Uuid>) -> Self {
        Remote { pool: lab.pool.clone(), unanswered, asked: AtomicUsize::new(0) }
    }
}

impl ThreePhases for Remote {
    type Event = Asked;
    type Question = Uuid;
    type Answer = bool;

    const WOULD_ASK: &'static str = "it would call the remote system";

    fn step(&self) -> &'static StepOn<Asked> {
        &ANSWER
    }

    async fn prepare(&self, tx: &mut StepTransaction<()>, asked: &[&Delivery<Asked>]) -> Prepared<Uuid, bool> {
        sqlx::query("create table if not exists intent (id uuid)").execute(tx.conn()).await?;
        Ok(asked.iter().map(|question| Next::Ask(question.event.id)).collect())
    }

    async fn ask(&self, question: Uuid, _: &Context) -> Result<bool, StepError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let open = "select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null
            and pid <> pg_backend_pid() and backend_type = 'client backend'";
        let open: i64 = sqlx::query_scalar(open).fetch_one(&self.pool).await?;
        let written: bool =
            sqlx::query_scalar("select to_regclass('intent') is not null").fetch_one(&self.pool).await?;
        match self.unanswered == Some(question) {
            true => Err(StepError::unavailable("no answer")),
            false => Ok(written && open == 0),
        }
    }

    async fn apply_outcomes(
        &self,
        tx: &mut StepTransaction<Delivery<Asked>>,
        outcomes: &[DeliveryOutcome<Asked, bool>],
    ) -> Result<(), StepError> {
        for (question, outcome) in outcomes {
            let id = question.event.id;
            match outcome {
                Outcome::Answer(true) => tx.advance(question, 1, &Answered { id })?,
                Outcome::Answer(false) => tx.refuse(question, 1, &Declined { id })?,
                Outcome::NotAsked(reason) => tx.skip(question, reason)?,
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn no_transaction_is_open_during_the_call() {
    let (lab, [question]) = Lab::with_questions().await;
    let remote = Remote::of(&lab, None);
    three_phases(&lab.outbox, &SAGA, &remote, Batch::new(&ANSWER, vec![question.clone()])).await.unwrap();
    assert_eq!(lab.published(&question).await, ["Answered.v1"]);
}

#[tokio::test]
async fn a_delivery_without_an_answer_delays_no_other() {
    let (lab, [silent, other]) = Lab::with_questions().await;
    let remote = Remote::of(&lab, Some(silent.event.id));
    let batch = || Batch::new(&ANSWER, vec![silent.clone(), other.clone()]);
    three_phases(&lab.outbox, &SAGA, &remote, batch()).await.unwrap();
    assert_eq!((lab.inbox_size().await, lab.journal(&silent).await.len()), (1, 0));
    assert_eq!(lab.journal(&other).await.len(), 1);
    three_phases(&lab.outbox, &SAGA, &Remote::of(&lab, None), batch()).await.unwrap();
    assert_eq!((lab.inbox_size().await, lab.journal(&silent).await.len()), (2, 1));
    assert_eq!(lab.journal(&other).await.len(), 1);
}

/// Its second answer arrives while the first is applied, which waits for it.
#[derive(Default)]
struct Overlapping {
    applying: Notify,
    answered: Notify,
    asked: AtomicUsize,
    applied: AtomicUsize,
}

impl ThreePhases for Overlapping {
    type Event = Asked;
    type Question = ();
    type Answer = ();

    const WOULD_ASK: &'static str = "it would ask";

    fn step(&self) -> &'static StepOn<Asked> {
        &ANSWER
    }

    async fn prepare(&self, _: &mut StepTransaction<()>, asked: &[&Delivery<Asked>]) -> Prepared<(), ()> {
        Ok(asked.iter().map(|_| Next::Ask(())).collect())
    }

    async fn ask(&self, (): (), _: &Context) -> Result<(), StepError> {
        if self.asked.fetch_add(1, Ordering::Relaxed) > 0 {
            self.applying.notified().await;
            self.answered.notify_one();
        }
        Ok(())
    }

    async fn apply_outcomes(
        &self,
        tx: &mut StepTransaction<Delivery<Asked>>,
        outcomes: &[DeliveryOutcome<Asked, ()>],
    ) -> Result<(), StepError> {
        if self.applied.fetch_add(1, Ordering::Relaxed) == 0 {
            self.applying.notify_one();
            self.answered.notified().await;
        }
        for (question, _) in outcomes {
            tx.advance(question, 1, &Answered { id: question.event.id })?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn calls_continue_while_other_answers_are_applied() {
    let (lab, questions) = Lab::with_questions::<2>().await;
    let batch = Batch::new(&ANSWER, questions.to_vec());
    let overlapping = Overlapping::default();
    let ended = timeout(Duration::from_secs(10), three_phases(&lab.outbox, &SAGA, &overlapping, batch));
    ended.await.expect("the second call makes no progress").unwrap();
    assert_eq!(lab.inbox_size().await, 2);
}

#[tokio::test]
async fn no_call_is_made_for_a_duplicate() {
    let (lab, [question]) = Lab::with_questions().await;
    let remote = Remote::of(&lab, None);
    for _ in 0..3 {
        three_phases(&lab.outbox, &SAGA, &remote, Batch::new(&ANSWER, vec![question.clone()])).await.unwrap();
    }
    assert_eq!(remote.asked.load(Ordering::Relaxed), 1);
    assert_eq!(lab.journal(&question).await.len(), 1);
}
