//! The behaviour of a breaker beyond its states, for which there is the model.

use std::time::Duration;

use saga::{Kind, Service, Step};
use tokio::time::{Instant, advance, sleep};

use crate::{Breaker, Breakers, Open, Overrides, Permit, State};

pub(crate) static STEP: Step = Step::on_request(2, "process_payment", Service("payment"), &[], Kind::Retriable);
static OTHER: Step = Step { name: "reserve_stock", ..STEP };

const OPEN_FOR: Duration = saga::Breaker::DEFAULT.open_for;

fn default_breaker() -> Breaker {
    Breakers::new(true, Overrides::default()).of(&STEP)
}

fn permit(breaker: &Breaker) -> Permit {
    breaker.admit().expect("a permit")
}

fn fail(breaker: &Breaker, times: usize) {
    (0..times).for_each(|_| permit(breaker).failure("no answer"));
}

fn succeed(breaker: &Breaker, times: usize) {
    (0..times).for_each(|_| permit(breaker).success());
}

fn state(breaker: &Breaker) -> &'static str {
    breaker.snapshot().state.label()
}

async fn half_open() -> Breaker {
    let breaker = default_breaker();
    fail(&breaker, 5);
    advance(OPEN_FOR).await;
    breaker
}

#[tokio::test(start_paused = true)]
async fn it_opens_at_the_failure_rate_and_then_admits_nothing() {
    let breaker = default_breaker();
    succeed(&breaker, 5);
    fail(&breaker, 4);
    assert_eq!(state(&breaker), "closed");
    fail(&breaker, 1);
    assert_eq!(breaker.admit().expect_err("open"), Open { retry_in: OPEN_FOR });
    advance(Duration::from_secs(4)).await;
    let snapshot = breaker.snapshot();
    assert_eq!(snapshot.retry_in, Some(Duration::from_secs(6)));
    assert_eq!((snapshot.since, snapshot.calls, snapshot.failure_rate), (Duration::from_secs(4), 10, 0.5));
    assert_eq!((snapshot.counts.rejected, snapshot.counts.opened), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn refusals_count_as_neither_success_nor_failure() {
    let breaker = default_breaker();
    fail(&breaker, 4);
    (0..1_000).for_each(|_| permit(&breaker).ignored());
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.window, snapshot.counts.ignored), (vec![true; 4], 1_000));
    fail(&breaker, 1);
    assert_eq!(state(&breaker), "open");
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_an_earlier_state_are_dropped() {
    let breaker = default_breaker();
    let (early, earlier) = (permit(&breaker), permit(&breaker));
    fail(&breaker, 5);
    advance(OPEN_FOR).await;
    let probe = permit(&breaker);
    early.failure("admitted while closed");
    assert_eq!(state(&breaker), "half-open");
    probe.failure("no answer");
    earlier.success();
    assert_eq!(state(&breaker), "open");
    assert_eq!(breaker.snapshot().counts.late, 2);
}

#[tokio::test(start_paused = true)]
async fn a_reset_closes_it_and_drops_calls_in_flight() {
    let breaker = default_breaker();
    let early = permit(&breaker);
    fail(&breaker, 5);
    breaker.reset();
    assert_eq!(state(&breaker), "closed");
    early.failure("late");
    assert_eq!(breaker.snapshot().calls, 0);
    assert_eq!(breaker.snapshot().last_failures.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn switched_off_it_admits_everything_and_counts_nothing() {
    let breaker = Breakers::disabled().of(&STEP);
    fail(&breaker, 100);
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.enabled, snapshot.state, snapshot.calls), (false, State::Closed, 0));
    assert_eq!(snapshot.counts, crate::Counts::default());
    assert_eq!(breaker.closed_or_probing().await, u32::MAX);
}

#[tokio::test(start_paused = true)]
async fn a_step_has_one_breaker_and_no_other_step_shares_it() {
    let breakers = Breakers::new(true, Overrides::default());
    fail(&breakers.of(&STEP), 5);
    assert_eq!(state(&breakers.clone().of(&STEP)), "open");
    assert_eq!(state(&breakers.of(&OTHER)), "closed");
    let steps: Vec<_> = breakers.snapshots().iter().map(|snapshot| snapshot.step).collect();
    assert_eq!(steps, ["process_payment", "reserve_stock"]);
    assert!(breakers.named("reserve_stock").is_some() && breakers.named("refund_payment").is_none());
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_probes_are_due_with_their_number() {
    let breaker = default_breaker();
    assert_eq!(breaker.closed_or_probing().await, u32::MAX);
    fail(&breaker, 5);
    let begun = Instant::now();
    assert_eq!(breaker.closed_or_probing().await, 3);
    assert_eq!(begun.elapsed(), OPEN_FOR);
    succeed(&breaker, 1);
    assert_eq!(breaker.closed_or_probing().await, 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_a_probe_is_cancelled_or_on_reset() {
    let breaker = half_open().await;
    let probes = [permit(&breaker), permit(&breaker), permit(&breaker)];
    let begun = Instant::now();
    let refused = async {
        sleep(Duration::from_secs(2)).await;
        drop(probes);
    };
    let (first, second, ()) = tokio::join!(breaker.closed_or_probing(), breaker.closed_or_probing(), refused);
    assert_eq!((first > 0, second > 0, begun.elapsed()), (true, true, Duration::from_secs(2)));
    fail(&breaker, 1);
    let reset = async {
        sleep(Duration::from_secs(1)).await;
        breaker.reset();
    };
    assert_eq!(tokio::join!(breaker.closed_or_probing(), reset).0, u32::MAX);
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn after_failing_probes_waiters_wait_for_the_next_round() {
    let breaker = half_open().await;
    let probes = [permit(&breaker), permit(&breaker), permit(&breaker)];
    let begun = Instant::now();
    let failing = async {
        sleep(Duration::from_secs(2)).await;
        probes.into_iter().for_each(|probe| probe.failure("no answer"));
    };
    let waiting = tokio::time::timeout(Duration::from_secs(60), breaker.closed_or_probing());
    assert_eq!(tokio::join!(waiting, failing).0, Ok(3));
    assert_eq!(begun.elapsed(), OPEN_FOR + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn every_change_is_published_in_order_with_its_reason() {
    let breakers = Breakers::new(true, Overrides::default());
    let (mut changes, breaker) = (breakers.changes(), breakers.of(&STEP));
    let watched = breaker.watch();
    fail(&breaker, 5);
    assert!(matches!(*watched.borrow(), State::Open { .. }));
    advance(OPEN_FOR).await;
    fail(&breaker, 1);
    advance(OPEN_FOR).await;
    succeed(&breaker, 3);
    let received: Vec<_> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
    let received: Vec<_> =
        received.iter().map(|change| (change.from.label(), change.to.label(), change.why.as_str())).collect();
    let expected = [
        ("closed", "open", "5 of the last 5 calls failed, the last one: no answer"),
        ("open", "half-open", "open for 10s"),
        ("half-open", "open", "a probe failed: no answer"),
        ("open", "half-open", "open for 10s"),
        ("half-open", "closed", "3 of 3 probes succeeded"),
    ];
    assert_eq!(received, expected);
}

#[tokio::test(start_paused = true)]
async fn the_last_ten_failures_are_kept_newest_first() {
    let never = saga::Breaker { failure_rate: 1.1, ..saga::Breaker::DEFAULT };
    let breaker = Breakers::new(true, Overrides::default()).of(&Step { breaker: never, ..STEP });
    for number in 0..12 {
        permit(&breaker).failure(format!("failure {number}"));
        advance(Duration::from_secs(1)).await;
    }
    let past = breaker.snapshot().last_failures;
    assert_eq!((past.len(), past[0].reason.as_str(), past[9].reason.as_str()), (10, "failure 11", "failure 2"));
    assert_eq!((past[0].ago, past[9].ago), (Duration::from_secs(1), Duration::from_secs(10)));
}
