//! A step behind the pivot: a completed saga owes it, and cannot turn back once it is taken.

use std::time::Duration;

use messaging::{Batch, Context, Delivery, Metadata};
use saga::{Breaker, CompensationPolicy, Event, Kind, Retry, SagaDefinition, Step, StepOn, Trigger};
use saga_store::{Request, StepTransaction, open_events, stalled};

use crate::lab::{ASK, Answered, Asked, Filed, Lab, TOY, Withdrawn};

static SAGA: SagaDefinition = SagaDefinition {
    saga_type: "Toy",
    steps: &[&ASK, &CLOSE.step, &FILE.step, &WITHDRAW],
    deadline: Step::TIME_LIMIT,
    compensation: CompensationPolicy { deadline: Step::TIME_LIMIT, max_attempts: 5 },
    terminal: &[Filed::TYPE, Withdrawn::TYPE],
};

static CLOSE: StepOn<Asked> = StepOn::new(1, "close", TOY, &[Answered::TYPE], Kind::Pivot);
static FILE: StepOn<Answered> = StepOn::new(2, "file", TOY, &[Filed::TYPE], Kind::Retriable);
static WITHDRAW: Step = Step {
    number: 0,
    name: "cancel_order_on_request",
    service: Some(TOY),
    on: Trigger::Http,
    emits: &[Withdrawn::TYPE],
    kind: Kind::Cancellation,
    retry: Retry::DEFAULT,
    breaker: Breaker::DEFAULT,
    time_limit: Step::TIME_LIMIT,
};

/// A question that is closed: what sets `file` in motion.
async fn closed(lab: &Lab) -> Delivery<Answered> {
    let [question] = lab.questions().await;
    let advanced = "update saga_instance set status = 'IN_PROGRESS', version = version + 1 where saga_id = $1";
    sqlx::query(advanced).bind(question.event.id).execute(&lab.pool).await.unwrap();
    let batch = Batch::new(&CLOSE, vec![question.clone()]);
    let mut tx = StepTransaction::take(&lab.outbox, &SAGA, &CLOSE, batch).await.unwrap();
    let event = Answered { id: question.event.id };
    tx.complete(&question, 1, &event).unwrap();
    tx.commit().await.unwrap();
    let find = "select event_id from outbox where event_type = 'Answered.v1' and aggregate_id = $1";
    let event_id = sqlx::query_scalar(find).bind(event.id.to_string()).fetch_one(&lab.pool).await.unwrap();
    Delivery { event, meta: Metadata { event_id, ..question.meta } }
}

async fn take(lab: &Lab, closed: &Delivery<Answered>) -> StepTransaction<Delivery<Answered>> {
    let batch = Batch::new(&FILE, vec![closed.clone()]);
    StepTransaction::take(&lab.outbox, &SAGA, &FILE, batch).await.unwrap()
}

async fn file(lab: &Lab, closed: &Delivery<Answered>) {
    let mut tx = take(lab, closed).await;
    tx.done(closed, 2, &Filed { id: closed.event.id }).unwrap();
    tx.commit().await.unwrap();
}

/// The request that the question be withdrawn, with its saga locked.
async fn withdrawal(lab: &Lab, closed: &Delivery<Answered>) -> (StepTransaction<Request>, Request) {
    let request = Request { saga_id: closed.event.id, context: Context::background("test") };
    let tx = StepTransaction::begin(&lab.outbox, &SAGA, &WITHDRAW).await.unwrap();
    (tx.lock(vec![request.clone()]).await.unwrap(), request)
}

async fn saga(lab: &Lab, closed: &Delivery<Answered>) -> String {
    let select =
        "select concat_ws(' ', status, current_step, receipts_due::text) from saga_instance where saga_id = $1";
    sqlx::query_scalar(select).bind(closed.event.id).fetch_one(&lab.pool).await.unwrap()
}

#[tokio::test]
async fn its_events_are_needed_until_the_step_is_taken() {
    let lab = Lab::start().await;
    let closed = closed(&lab).await;
    let mut conn = lab.pool.acquire().await.unwrap();
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 1 {toy}");
    let open = open_events(&mut conn, TOY).await.unwrap();
    assert!(open.contains(&closed.meta.event_id), "{open:?}");
    file(&lab, &closed).await;
    assert_eq!(saga(&lab, &closed).await, "COMPLETED 2 {}");
    assert!(open_events(&mut conn, TOY).await.unwrap().is_empty());
}

#[tokio::test]
async fn its_last_event_is_published_again_when_nothing_comes() {
    let lab = Lab::start().await;
    let closed = closed(&lab).await;
    let published = "with gone as (delete from outbox where event_id = $1 returning *)
        insert into outbox_published (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
            subject, headers, payload, saga_id, created_at, stream, stream_sequence, stream_epoch, relay)
        select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
            payload, saga_id, created_at, 'TOY', 1, 1, 'relay'
        from gone";
    sqlx::query(published).bind(closed.meta.event_id).execute(&lab.pool).await.unwrap();
    assert_eq!(stalled::republish(&lab.outbox, Duration::from_secs(60)).await.unwrap(), 0, "it has time yet");
    assert_eq!(stalled::republish(&lab.outbox, Duration::ZERO).await.unwrap(), 1);
    assert_eq!(stalled::republish(&lab.outbox, Duration::ZERO).await.unwrap(), 0, "once");
}

#[tokio::test]
async fn a_saga_that_turned_back_before_skips_it() {
    let lab = Lab::start().await;
    let closed = closed(&lab).await;
    let (mut tx, request) = withdrawal(&lab, &closed).await;
    assert!(!tx.is_past_pivot(&request));
    tx.compensate(&request, 2, &Withdrawn { id: closed.event.id }, "no need").unwrap();
    tx.commit().await.unwrap();
    let tx = take(&lab, &closed).await;
    assert!(tx.deliveries().is_empty());
    tx.commit().await.unwrap();
    let skipped = "select reason from saga_step where saga_id = $1 and step = 'file' and status = 'SKIPPED'";
    let reason: String = sqlx::query_scalar(skipped).bind(closed.event.id).fetch_one(&lab.pool).await.unwrap();
    assert_eq!(reason, "the saga has turned back since it was completed");
}

#[tokio::test]
async fn a_saga_that_has_taken_it_cannot_turn_back() {
    let lab = Lab::start().await;
    let closed = closed(&lab).await;
    file(&lab, &closed).await;
    let (mut tx, request) = withdrawal(&lab, &closed).await;
    assert!(tx.is_past_pivot(&request));
    tx.compensate(&request, 3, &Withdrawn { id: closed.event.id }, "too late").unwrap_err();
}
