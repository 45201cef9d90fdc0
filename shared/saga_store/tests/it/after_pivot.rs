//! A step after the pivot: a completed saga owes it, and cannot be compensated once it is done.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use messaging::{Batch, Context, Delivery, Metadata, StepError};
use saga::{CompensationPolicy, Event, Kind, SagaDefinition, Service, Step, StepOn};
use saga_store::{
    DeliveryOutcome, Next, Outcome, Prepared, Request, StepTransaction, ThreePhases, open_events, query, sample,
    stalled, three_phases,
};
use uuid::Uuid;

use crate::lab::{ASK, Answered, Asked, Filed, Lab, Stamped, TOY, Withdrawn};

static SAGA: SagaDefinition = SagaDefinition {
    saga_type: "Toy",
    steps: &[&ASK, &CLOSE.step, &FILE.step, &WITHDRAW],
    deadline: Step::TIME_LIMIT,
    compensation: CompensationPolicy { deadline: Step::TIME_LIMIT, max_attempts: 5 },
    terminal: &[Filed::TYPE, Withdrawn::TYPE],
};

static CLOSE: StepOn<Asked> = StepOn::new(1, "close", TOY, &[Answered::TYPE], Kind::Pivot);
static FILE: StepOn<Answered> = StepOn::new(2, "file", TOY, &[Filed::TYPE], Kind::Retriable);
static WITHDRAW: Step = Step::on_request(0, "withdraw", TOY, &[Withdrawn::TYPE], Kind::Cancellation);

/// A closed question: the trigger of `file`.
async fn closed() -> (Lab, Delivery<Answered>) {
    let lab = Lab::start().await;
    let closed = closed_in(&lab, &SAGA).await;
    (lab, closed)
}

async fn closed_in(lab: &Lab, definition: &'static SagaDefinition) -> Delivery<Answered> {
    let [question] = lab.questions().await;
    let advanced = "update saga_instance set status = 'IN_PROGRESS', version = version + 1 where saga_id = $1";
    sqlx::query(advanced).bind(question.event.id).execute(&lab.pool).await.unwrap();
    let batch = Batch::new(&CLOSE, vec![question.clone()]);
    let mut tx = StepTransaction::take(&lab.outbox, definition, &CLOSE, batch).await.unwrap();
    let answered = Answered { id: question.event.id };
    tx.complete(&question, 1, &answered).unwrap();
    tx.commit().await.unwrap();
    let event_id = event(lab, "Answered.v1", answered.id).await;
    Delivery { event: answered, meta: Metadata { event_id, ..question.meta } }
}

/// The id of a pending event in the outbox.
async fn event(lab: &Lab, event_type: &str, id: Uuid) -> Uuid {
    let find = "select event_id from outbox where event_type = $1 and aggregate_id = $2";
    sqlx::query_scalar(find).bind(event_type).bind(id.to_string()).fetch_one(&lab.pool).await.unwrap()
}

/// The types of the pending events in the outbox.
async fn waiting(lab: &Lab) -> Vec<String> {
    sqlx::query_scalar("select event_type from outbox order by position").fetch_all(&lab.pool).await.unwrap()
}

async fn take(
    lab: &Lab,
    definition: &'static SagaDefinition,
    closed: &Delivery<Answered>,
) -> StepTransaction<Delivery<Answered>> {
    let batch = Batch::new(&FILE, vec![closed.clone()]);
    StepTransaction::take(&lab.outbox, definition, &FILE, batch).await.unwrap()
}

async fn file(lab: &Lab, closed: &Delivery<Answered>) {
    file_in(lab, &SAGA, closed).await;
}

async fn file_in(lab: &Lab, definition: &'static SagaDefinition, closed: &Delivery<Answered>) {
    let mut tx = take(lab, definition, closed).await;
    tx.done(closed, 2, &Filed { id: closed.event.id }).unwrap();
    tx.commit().await.unwrap();
}

/// A request to withdraw the question, with its saga locked.
async fn withdrawal(lab: &Lab, closed: &Delivery<Answered>) -> (StepTransaction<Request>, Request) {
    let request = Request { saga_id: closed.event.id, context: Context::background("test") };
    let tx = StepTransaction::begin(&lab.outbox, &SAGA, &WITHDRAW).await.unwrap();
    (tx.lock(vec![request.clone()]).await.unwrap(), request)
}

async fn withdraw(lab: &Lab, closed: &Delivery<Answered>) {
    let (mut tx, request) = withdrawal(lab, closed).await;
    assert!(!tx.is_past_pivot(&request));
    tx.compensate(&request, 2, &Withdrawn { id: closed.event.id }, "no need").unwrap();
    tx.commit().await.unwrap();
}

/// The journal entries of `file`.
async fn filing(lab: &Lab, closed: &Delivery<Answered>) -> Vec<String> {
    let select = "select concat_ws(' ', status, reason) from saga_step
        where saga_id = $1 and step = 'file' order by position";
    sqlx::query_scalar(select).bind(closed.event.id).fetch_all(&lab.pool).await.unwrap()
}

async fn saga(lab: &Lab, closed: &Delivery<Answered>) -> String {
    let select =
        "select concat_ws(' ', status, current_step, receipts_due::text) from saga_instance where saga_id = $1";
    sqlx::query_scalar(select).bind(closed.event.id).fetch_one(&lab.pool).await.unwrap()
}

#[tokio::test]
async fn its_events_are_open_until_the_step_is_done() {
    let (lab, closed) = closed().await;
    let mut conn = lab.pool.acquire().await.unwrap();
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 1 {toy}");
    let open = open_events(&mut conn, TOY).await.unwrap();
    assert!(open.contains(&closed.meta.event_id), "{open:?}");
    file(&lab, &closed).await;
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 2 {}");
    assert!(open_events(&mut conn, TOY).await.unwrap().is_empty());
}

/// As if the relay had published the event.
async fn publish(lab: &Lab, event_id: Uuid) {
    let publish = "with gone as (delete from outbox where event_id = $1 returning *)
        insert into outbox_published (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
            subject, headers, payload, saga_id, created_at, stream, stream_sequence, stream_epoch, relay, republication)
        select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
            payload, saga_id, created_at, 'TOY', 1, 1, 'relay', republication
        from gone
        on conflict (event_id) do update
        set published_at = excluded.published_at, republication = excluded.republication";
    assert_eq!(sqlx::query(publish).bind(event_id).execute(&lab.pool).await.unwrap().rows_affected(), 1);
}

/// The number of events that are republished when this one was published so many seconds ago.
async fn again_after(lab: &Lab, definition: &SagaDefinition, event_id: Uuid, seconds: i32) -> u64 {
    let aged = "update outbox_published set published_at = now() - make_interval(secs => $2) where event_id = $1";
    sqlx::query(aged).bind(event_id).bind(f64::from(seconds)).execute(&lab.pool).await.unwrap();
    let (first_wait, remembered) = (Duration::from_secs(60), Duration::from_secs(7 * 24 * 3600));
    stalled::republish_owed(&lab.outbox, definition, first_wait, remembered).await.unwrap()
}

#[tokio::test]
async fn its_trigger_is_republished_with_backoff() {
    let (lab, closed) = closed().await;
    let trigger = closed.meta.event_id;
    assert_eq!(again_after(&lab, &SAGA, trigger, 1000).await, 0, "it is pending in the outbox");
    for wait in [60, 120, 240] {
        publish(&lab, trigger).await;
        assert_eq!(again_after(&lab, &SAGA, trigger, wait - 5).await, 0, "it has {wait} seconds");
        assert_eq!(again_after(&lab, &SAGA, trigger, wait + 5).await, 1, "it had {wait} seconds");
    }
    assert_eq!(stalled::republish(&lab.outbox, Duration::ZERO).await.unwrap(), 0, "the saga does not run");
    publish(&lab, trigger).await;
    let created = "update outbox_published set created_at = now() - make_interval(days => $1)";
    sqlx::query(created).bind(8).execute(&lab.pool).await.unwrap();
    assert_eq!(again_after(&lab, &SAGA, trigger, 1000).await, 0, "an inbox may have forgotten it");
    sqlx::query(created).bind(6).execute(&lab.pool).await.unwrap();
    assert_eq!(again_after(&lab, &SAGA, trigger, 1000).await, 1);
    publish(&lab, trigger).await;
    file(&lab, &closed).await;
    assert_eq!(again_after(&lab, &SAGA, trigger, 1000).await, 0, "nothing is owed");
}

#[tokio::test]
async fn each_owed_step_has_its_own_trigger_republished() {
    static STAMP: StepOn<Filed> = StepOn::new(0, "stamp", Service("office"), &[Stamped::TYPE], Kind::Retriable);
    static STAMPED: SagaDefinition = SagaDefinition {
        steps: &[&ASK, &CLOSE.step, &FILE.step, &STAMP.step, &WITHDRAW],
        terminal: &[Stamped::TYPE, Withdrawn::TYPE],
        ..SAGA
    };
    let lab = Lab::start().await;
    let closed = closed_in(&lab, &STAMPED).await;
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 1 {toy,office}");
    publish(&lab, closed.meta.event_id).await;
    assert_eq!(again_after(&lab, &STAMPED, closed.meta.event_id, 100).await, 1);
    assert_eq!(waiting(&lab).await, ["Asked.v1", "Answered.v1"]);
    publish(&lab, closed.meta.event_id).await;
    file_in(&lab, &STAMPED, &closed).await;
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 2 {office}");
    let filed = event(&lab, "Filed.v1", closed.event.id).await;
    publish(&lab, filed).await;
    assert_eq!(again_after(&lab, &STAMPED, closed.meta.event_id, 1000).await, 0, "that step is done");
    assert_eq!(again_after(&lab, &STAMPED, filed, 100).await, 1);
    assert_eq!(waiting(&lab).await, ["Asked.v1", "Filed.v1"]);
}

#[tokio::test]
async fn gauges_show_owed_steps() {
    let (lab, closed) = closed().await;
    let shown = async || -> Vec<(String, f64)> {
        let shown = sample::read(&lab.pool, &SAGA).await.unwrap().into_iter().filter(|r| r.name.contains("owing"));
        shown.map(|r| (r.name, r.value)).collect()
    };
    let before = "update saga_instance set completed_at = now() - interval '1 hour' where status = 'COMPLETED'";
    sqlx::query(before).execute(&lab.pool).await.unwrap();
    let [(owing, 1.0), (age, seconds)] = &shown().await[..] else { panic!("{:?}", shown().await) };
    assert_eq!([owing.as_str(), age.as_str()], ["saga_owing", "saga_oldest_owing_age_seconds"]);
    assert!((3600.0..3660.0).contains(seconds), "{seconds}");
    file(&lab, &closed).await;
    assert!(shown().await.iter().all(|(_, value)| *value == 0.0), "{:?}", shown().await);
}

#[tokio::test]
async fn a_saga_that_owes_a_step_is_not_purged() {
    let (lab, closed) = closed().await;
    let mut conn = lab.pool.acquire().await.unwrap();
    let before = "update saga_instance set completed_at = now() - interval '40 days' where status = 'COMPLETED'";
    sqlx::query(before).execute(&mut *conn).await.unwrap();
    assert_eq!(query::purge(&mut conn, Duration::ZERO, 10).await.unwrap(), 0);
    file(&lab, &closed).await;
    assert_eq!(query::purge(&mut conn, Duration::ZERO, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn an_operator_can_forgive_an_owed_step() {
    let (lab, closed) = closed().await;
    let forgive = async |service: &str| -> i64 {
        let forgive = "select forgive_owed($1, 'the step is given up')";
        sqlx::query_scalar(forgive).bind(service).fetch_one(&lab.pool).await.unwrap()
    };
    assert_eq!((forgive("office").await, forgive("toy").await, forgive("toy").await), (0, 1, 0));
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 1 {}");
    let journal = "select concat_ws(' ', j.step, j.service, j.status, j.status_before, j.status_after, j.reason)
        from saga_step j join saga_instance s on s.saga_id = j.saga_id and s.version = j.position where s.saga_id = $1";
    let journal: String = sqlx::query_scalar(journal).bind(closed.event.id).fetch_one(&lab.pool).await.unwrap();
    assert_eq!(journal, "forgive_owed toy SKIPPED COMPLETED COMPLETED the step is given up");
    file(&lab, &closed).await;
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 2 {}", "a forgiven step may still be done");
}

#[tokio::test]
async fn a_reopened_saga_skips_the_step() {
    let (lab, closed) = closed().await;
    withdraw(&lab, &closed).await;
    let tx = take(&lab, &SAGA, &closed).await;
    assert!(tx.deliveries().is_empty());
    tx.commit().await.unwrap();
    assert_eq!(filing(&lab, &closed).await, ["SKIPPED the saga is no longer COMPLETED"]);
}

#[tokio::test]
async fn a_saga_past_its_pivot_cannot_be_compensated() {
    let (lab, closed) = closed().await;
    file(&lab, &closed).await;
    let (mut tx, request) = withdrawal(&lab, &closed).await;
    assert!(tx.is_past_pivot(&request));
    tx.compensate(&request, 3, &Withdrawn { id: closed.event.id }, "too late").unwrap_err();
}

/// Files in three phases. With `withdrawn_meanwhile` the question is withdrawn during the call.
struct Registry<'a> {
    lab: &'a Lab,
    withdrawn_meanwhile: bool,
    asked: AtomicU32,
    applied: AtomicU32,
}

impl<'a> Registry<'a> {
    fn of(lab: &'a Lab, withdrawn_meanwhile: bool) -> Self {
        Registry { lab, withdrawn_meanwhile, asked: AtomicU32::new(0), applied: AtomicU32::new(0) }
    }

    async fn file(&self, closed: &Delivery<Answered>) -> (u32, u32) {
        let batch = Batch::new(&FILE, vec![closed.clone()]);
        three_phases(&self.lab.outbox, &SAGA, self, batch).await.unwrap();
        (self.asked.load(Ordering::Relaxed), self.applied.load(Ordering::Relaxed))
    }
}

impl ThreePhases for Registry<'_> {
    type Event = Answered;
    type Question = Delivery<Answered>;
    type Answer = ();

    const WOULD_ASK: &'static str = "it would call the registry";

    fn step(&self) -> &'static StepOn<Answered> {
        &FILE
    }

    async fn prepare(
        &self,
        _: &mut StepTransaction<()>,
        closed: &[&Delivery<Answered>],
    ) -> Prepared<Delivery<Answered>, ()> {
        Ok(closed.iter().map(|delivery| Next::Ask((*delivery).clone())).collect())
    }

    async fn ask(&self, closed: Delivery<Answered>, _: &Context) -> Result<(), StepError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.withdrawn_meanwhile {
            withdraw(self.lab, &closed).await;
        }
        Ok(())
    }

    async fn apply_outcomes(
        &self,
        tx: &mut StepTransaction<Delivery<Answered>>,
        outcomes: &[DeliveryOutcome<Answered, ()>],
    ) -> Result<(), StepError> {
        for (closed, outcome) in outcomes {
            match outcome {
                Outcome::Answer(()) => {
                    self.applied.fetch_add(1, Ordering::Relaxed);
                    tx.done(closed, 2, &Filed { id: closed.event.id })?;
                }
                Outcome::NotAsked(reason) => tx.skip(closed, reason)?,
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn three_phases_take_the_step_as_one_does() {
    let (lab, closed) = closed().await;
    assert_eq!(Registry::of(&lab, false).file(&closed).await, (1, 1));
    assert_eq!((saga(&lab, &closed).await.as_str(), filing(&lab, &closed).await.len()), ("COMPLETED 2 {}", 1));
}

#[tokio::test]
async fn no_call_is_made_for_a_reopened_saga() {
    let (lab, closed) = closed().await;
    withdraw(&lab, &closed).await;
    assert_eq!(Registry::of(&lab, false).file(&closed).await, (0, 0));
    assert_eq!(filing(&lab, &closed).await, ["SKIPPED the saga is no longer COMPLETED"]);
}

#[tokio::test]
async fn an_answer_after_reopening_publishes_nothing() {
    let (lab, closed) = closed().await;
    assert_eq!(Registry::of(&lab, true).file(&closed).await, (1, 1));
    assert_eq!(filing(&lab, &closed).await, ["SKIPPED the saga is no longer COMPLETED"]);
    assert!(!waiting(&lab).await.contains(&"Filed.v1".to_owned()));
    assert_eq!(saga(&lab, &closed).await, "COMPENSATING 1 {}");
}
