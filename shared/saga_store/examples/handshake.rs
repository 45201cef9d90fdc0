//! A complete saga in one program: a host offers a hand, a guest takes it. Needs DATABASE_URL and NATS_URL.
#![allow(clippy::disallowed_methods, reason = "an example reads the servers' addresses from its environment")]

use std::time::Duration;

use messaging::{Batch, Bus, Consumer, Context, Metrics, Outbox, Relay, StepResult, subscribe, topology::Topology};
use saga::{CompensationPolicy, Event, Kind, SagaDefinition, Service, Step, StepOn};
use saga_store::StepTransaction;
use sqlx::{PgPool, postgres::PgConnectOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const PARTY: Service = Service("party");
saga::event!(HandOffered { meeting: Uuid }, "meeting" by [PARTY]);
saga::event!(HandTaken { meeting: Uuid }, "meeting" by [PARTY]);
saga::event!(HandShaken { meeting: Uuid }, "meeting" by [PARTY]);

static SAGA: SagaDefinition = SagaDefinition {
    saga_type: "Handshake",
    steps: &[&OFFER_HAND, &TAKE_HAND.step, &SHAKE_HAND.step],
    deadline: Step::TIME_LIMIT,
    compensation: CompensationPolicy { deadline: Step::TIME_LIMIT, max_attempts: 5 },
    terminal: &[HandShaken::TYPE],
};
static OFFER_HAND: Step =
    Step::on_request(0, "offer_hand", PARTY, &[HandOffered::TYPE], Kind::Compensatable { by: &[] });
static TAKE_HAND: StepOn<HandOffered> =
    StepOn::new(1, "take_hand", PARTY, &[HandTaken::TYPE], Kind::Compensatable { by: &[] });
static SHAKE_HAND: StepOn<HandTaken> = StepOn::new(2, "shake_hand", PARTY, &[HandShaken::TYPE], Kind::Pivot);

async fn take_hand(party: Outbox, batch: Batch<HandOffered>) -> StepResult {
    let mut tx = StepTransaction::take(&party, &SAGA, &TAKE_HAND, batch).await?;
    for offer in tx.deliveries().iter() {
        tx.advance(offer, 2, &HandTaken { meeting: offer.event.meeting })?;
    }
    tx.commit().await
}

async fn shake_hand(party: Outbox, batch: Batch<HandTaken>) -> StepResult {
    let mut tx = StepTransaction::take(&party, &SAGA, &SHAKE_HAND, batch).await?;
    for taken in tx.deliveries().iter() {
        tx.complete(taken, 3, &HandShaken { meeting: taken.event.meeting })?;
    }
    tx.commit().await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    saga_store::migrate(&database).await?;
    messaging::migrate(&database, "party").await?;
    let pool = PgPool::connect_with(database.options([("search_path", "party, saga")])).await?;
    let nats = async_nats::connect(std::env::var("NATS_URL")?).await?;
    Topology::of([PARTY], SAGA.steps.iter().copied()).ensure(&nats).await?;

    let (party, stop) =
        (Outbox::new(pool.clone(), Bus::new(nats, PARTY), Metrics::default()), CancellationToken::new());
    let steps = [subscribe(&party, &TAKE_HAND, take_hand), subscribe(&party, &SHAKE_HAND, shake_hand)];
    let mut running = JoinSet::new();
    running.spawn(Relay { open_events: saga_store::open_events, ..Relay::of(&party) }.run(stop.clone()));
    for step in steps {
        running.spawn(Consumer::new(&party, step, PARTY).run(stop.clone()));
    }
    let meeting = Uuid::now_v7();
    let mut tx = StepTransaction::begin(&party, &SAGA, &OFFER_HAND).await?;
    tx.start(meeting, meeting, Context::background("evening"), &HandOffered { meeting })?;
    tx.commit().await?;
    let mut status = String::new();
    while status != "COMPLETED" {
        let ask = sqlx::query_scalar("select status from saga.saga_instance where saga_id = $1").bind(meeting);
        status = ask.fetch_one(&pool).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    println!("the saga is {status}");
    running.join_all().await;
    Ok(())
}
