//! Write down, ask, settle: and no transaction is open while somebody is asked.

use std::sync::atomic::{AtomicUsize, Ordering};

use messaging::{Batch, Context, Delivery, StepError};
use saga::StepOn;
use saga_store::{Finding, Found, Next, Prepared, StepTransaction, ThreePhases, three_phases};
use sqlx::PgPool;
use uuid::Uuid;

use crate::lab::{ANSWER, Answered, Asked, Declined, Lab, SAGA};

/// Asks somebody who knows every answer but one.
struct Oracle {
    pool: PgPool,
    silent_about: Option<Uuid>,
    asked: AtomicUsize,
}

impl Oracle {
    fn of(lab: &Lab, silent_about: Option<Uuid>) -> Self {
        Oracle { pool: lab.pool.clone(), silent_about, asked: AtomicUsize::new(0) }
    }
}

impl ThreePhases for Oracle {
    type Event = Asked;
    type Question = Uuid;
    type Answer = bool;

    const WOULD_ASK: &'static str = "it would ask the oracle";

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
        match self.silent_about == Some(question) {
            true => Err(StepError::unavailable("no answer")),
            false => Ok(written && open == 0),
        }
    }

    async fn settle(
        &self,
        tx: &mut StepTransaction<Delivery<Asked>>,
        found: &[Found<Asked, bool>],
    ) -> Result<(), StepError> {
        for (question, finding) in found {
            let id = question.event.id;
            match finding {
                Finding::Answer(true) => tx.advance(question, 1, &Answered { id })?,
                Finding::Answer(false) => tx.refuse(question, 1, &Declined { id })?,
                Finding::NotAsked(reason) => tx.skip(question, reason)?,
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn no_transaction_is_open_while_the_other_system_is_asked() {
    let lab = Lab::start().await;
    let [question] = lab.questions().await;
    let oracle = Oracle::of(&lab, None);
    three_phases(&lab.outbox, &SAGA, &oracle, Batch::new(&ANSWER, vec![question.clone()])).await.unwrap();
    assert_eq!(lab.published(&question).await, ["Answered.v1"]);
}

#[tokio::test]
async fn a_delivery_without_an_answer_holds_up_no_other() {
    let lab = Lab::start().await;
    let [silent, other] = lab.questions().await;
    let oracle = Oracle::of(&lab, Some(silent.event.id));
    let batch = || Batch::new(&ANSWER, vec![silent.clone(), other.clone()]);
    three_phases(&lab.outbox, &SAGA, &oracle, batch()).await.unwrap();
    assert_eq!((lab.had().await, lab.journal(&silent).await.len()), (1, 0));
    assert_eq!(lab.journal(&other).await.len(), 1);
    three_phases(&lab.outbox, &SAGA, &Oracle::of(&lab, None), batch()).await.unwrap();
    assert_eq!((lab.had().await, lab.journal(&silent).await.len()), (2, 1));
    assert_eq!(lab.journal(&other).await.len(), 1);
}

#[tokio::test]
async fn nobody_is_asked_about_a_repeat() {
    let lab = Lab::start().await;
    let [question] = lab.questions().await;
    let oracle = Oracle::of(&lab, None);
    for _ in 0..3 {
        three_phases(&lab.outbox, &SAGA, &oracle, Batch::new(&ANSWER, vec![question.clone()])).await.unwrap();
    }
    assert_eq!(oracle.asked.load(Ordering::Relaxed), 1);
    assert_eq!(lab.journal(&question).await.len(), 1);
}
