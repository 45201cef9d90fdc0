//! Each event has one effect, and a failing event affects no other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use messaging::{
    Consumer, Relay,
    dead_letter::{self, BatchRequest, DryRun, Filter, Foreseen, ReplayOutcome},
    metrics::StepLabel,
    outbox,
};
use testkit::eventually;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::house::{HOUSE, House, OPEN_DOOR};

const LIMIT: Duration = Duration::from_secs(30);

async fn dead_letters(house: &House) -> Vec<dead_letter::DeadLetter> {
    dead_letter::list(&house.pool, &Filter { limit: 10, ..Filter::default() }).await.unwrap()
}

async fn dry_run(house: &House) -> DryRun {
    let (actor, selection) = ("test".to_owned(), Default::default());
    let request = BatchRequest { actor, reason: None, selection, limit: 10, ramp: vec![1] };
    let mut foreseen = dead_letter::dry_run(&house.replays(), request).await.unwrap();
    assert_eq!(foreseen.len(), 1);
    foreseen.remove(0)
}

/// Publishes and consumes the events once more.
async fn repeat(house: &House, ids: &[Uuid]) {
    let mut work = house.outbox.begin().await.unwrap();
    assert_eq!(outbox::republish(work.conn(), ids).await.unwrap(), ids.len() as u64);
    work.commit().await.unwrap();
    house.relay().await;
    house.consume().await;
}

#[tokio::test]
async fn an_event_delivered_twice_has_one_effect() {
    let house = House::start().await;
    let ids = house.ring(&["friend", "neighbour"]).await;
    house.consume().await;
    repeat(&house, &ids).await;
    // Two rings, each published twice, and the two events that answer them.
    assert_eq!(house.streamed().await, 6);
    assert_eq!((house.count("opened").await, house.count("inbox").await), (2, 2));
}

#[tokio::test]
async fn one_failing_event_of_a_batch_affects_no_other() {
    let house = House::start().await;
    house.ring(&["friend", "burglar", "stranger", "neighbour"]).await;
    house.consume().await;
    assert_eq!((house.count("opened").await, house.count("inbox").await), (2, 3));
    let [letter] = &dead_letters(&house).await[..] else { panic!("one dead letter was expected") };
    assert_eq!((letter.reason.as_str(), letter.status.as_str()), ("poison", "PENDING"));
}

#[tokio::test]
async fn a_dead_letter_that_comes_again_is_counted_as_a_duplicate() {
    let house = House::start().await;
    let ids = house.ring(&["burglar"]).await;
    house.consume().await;
    repeat(&house, &ids).await;
    assert_eq!((house.streamed().await, dead_letters(&house).await.len()), (2, 1));
    let label = StepLabel { step: OPEN_DOOR.name };
    let counts = [&house.metrics.dead_letters, &house.metrics.inbox_duplicates];
    assert_eq!(counts.map(|counter| counter.get_or_create_owned(&label).get()), [1, 1]);
}

#[tokio::test]
async fn a_dead_letter_is_replayed_when_its_cause_is_resolved() {
    let house = House::start().await;
    house.ring(&["burglar"]).await;
    house.consume().await;
    let letter = dead_letters(&house).await.remove(0);
    let replay = async || dead_letter::replay(&house.replays(), letter.dead_letter_id, "test", None).await.unwrap();
    assert!(matches!(replay().await, ReplayOutcome::FailedAgain { counted: true, .. }));
    house.alarm.store(false, Ordering::Relaxed);
    assert_eq!(replay().await, ReplayOutcome::Resolved);
    assert_eq!(house.count("opened").await, 1);
}

#[tokio::test]
async fn a_dry_run_predicts_a_replay_and_changes_nothing() {
    let house = House::start().await;
    house.ring(&["burglar"]).await;
    house.consume().await;
    let before = dry_run(&house).await;
    assert_eq!((before.outcome, before.emits.len()), (Foreseen::WouldFail, 0));
    house.alarm.store(false, Ordering::Relaxed);
    let after = dry_run(&house).await;
    assert_eq!((after.outcome, after.emits), (Foreseen::WouldApply, vec!["Opened.v1".to_owned()]));
    assert_eq!((house.count("opened").await, house.count("inbox").await, house.count("outbox").await), (0, 0, 0));
    let letter = dead_letters(&house).await.remove(0);
    assert_eq!((letter.status.as_str(), letter.replay_count), ("PENDING", 0));
}

/// A replica's relay; returns when it is active or stands by.
async fn relay(house: &House) {
    let works = Arc::new(AtomicBool::new(false));
    let report = Arc::clone(&works);
    let relay = Relay {
        report: Arc::new(move |state| report.store(state.is_ok(), Ordering::Relaxed)),
        ..Relay::of(&house.outbox)
    };
    tokio::spawn(relay.run(CancellationToken::new()));
    let works = async || works.load(Ordering::Relaxed) || house.metrics.relay_active.get() == 1;
    eventually(LIMIT, works).await.unwrap();
}

#[tokio::test]
async fn one_replica_consumes_and_the_other_joins_when_needed() {
    let active = House::start().await;
    let standby = active.replica().await;
    relay(&active).await;
    relay(&standby).await;
    let consume =
        |house: &House| tokio::spawn(Consumer::new(&house.outbox, house.step(), HOUSE).run(CancellationToken::new()));
    let first = consume(&active);
    eventually(LIMIT, async || active.consumer().await.num_waiting == 1).await.unwrap();
    let _second = consume(&standby);
    for _ in 0..20 {
        standby.write("friend").await.unwrap();
    }
    eventually(LIMIT, async || active.count("opened").await == 20).await.unwrap();
    let applied =
        |house: &House| house.metrics.inbox_applied.get_or_create_owned(&StepLabel { step: OPEN_DOOR.name }).get();
    assert_eq!((applied(&active), applied(&standby)), (20, 0));

    // The active replica no longer asks.
    first.abort();
    standby.write("friend").await.unwrap();
    eventually(LIMIT, async || applied(&standby) == 1).await.unwrap();
}
