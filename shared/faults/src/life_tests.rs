//! No fault outlives its expiry, its disarming or its last hit, and nobody it holds does either.

use std::{future::Future, task::Poll, time::Duration};

use tokio::time::{Instant, advance, timeout};

use crate::{
    FaultPoint, Faults, Injected, Kind, Pass, Scope, Subject,
    hit_tests::{Seen, pass, seen_of, spec},
};

const POINT: FaultPoint = FaultPoint::GatewayCall;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn one() -> Subject {
    Subject::default().customer("one")
}

/// Whether it is over already.
async fn polled<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn no_kind_acts_after_its_fault_has_expired() {
    for kind in Kind::ALL {
        let faults = Faults::armable();
        faults.arm(spec(POINT, kind).expires_in(30), "test").expect("armed");
        advance(seconds(30)).await;
        assert_eq!(pass(&faults, POINT, &one()).await, Seen::Nothing, "{kind:?}");
        assert!(!faults.is_armed() && faults.armed().is_empty() && faults.hits().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_acts_until_its_fault_expires() {
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Crash) {
        let faults = Faults::armable();
        let armed = faults.arm(spec(POINT, kind).expires_in(30), "test").expect("armed");
        advance(seconds(28)).await;
        assert_eq!(pass(&faults, POINT, &one()).await, seen_of(&armed), "{kind:?}");
        assert!(faults.is_armed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_fault_is_seen_by_nobody_even_if_nobody_passed() {
    let faults = Faults::armable();
    let id = faults.arm(spec(POINT, Kind::Error), "test").expect("armed").id;
    advance(seconds(60) - Duration::from_millis(1)).await;
    assert!(faults.is_armed() && faults.concerns(&[POINT], one));
    advance(Duration::from_millis(1)).await;
    assert!(!faults.is_armed());
    assert!(!faults.concerns(&[POINT], one));
    assert!(!faults.disarm(id), "it was gone");
}

#[tokio::test(start_paused = true)]
async fn a_hang_ends_when_its_fault_expires() {
    let faults = Faults::armable();
    faults.arm(spec(POINT, Kind::Hang).expires_in(30), "test").expect("armed");
    advance(seconds(10)).await;
    let began = Instant::now();
    assert_eq!(timeout(seconds(100), faults.at(POINT, one)).await, Ok(Ok(Pass::Unharmed)));
    assert!((seconds(20)..seconds(21)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(faults.armed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hang_and_a_latency_end_when_their_fault_is_disarmed() {
    for kind in [Kind::Hang, Kind::Latency] {
        let faults = Faults::armable();
        let id = faults.arm(spec(POINT, kind), "test").expect("armed").id;
        let other = faults.arm(spec(POINT, kind), "test").expect("armed").id;
        let mut held = [Box::pin(faults.at(POINT, one)), Box::pin(faults.at(POINT, one))];
        for pass in &mut held {
            assert_eq!(polled(pass).await, None);
        }
        assert!(faults.disarm(other));
        for pass in &mut held {
            assert_eq!(polled(pass).await, None, "another fault holds it");
        }
        let began = Instant::now();
        assert!(faults.disarm(id));
        for pass in held {
            assert_eq!(timeout(seconds(100), pass).await, Ok(Ok(Pass::Unharmed)));
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_latency_ends_when_its_fault_expires() {
    let faults = Faults::armable();
    faults.arm(spec(POINT, Kind::Latency).latency(30_000).expires_in(30), "test").expect("armed");
    advance(seconds(29)).await;
    let began = Instant::now();
    assert_eq!(faults.at(POINT, one).await, Ok(Pass::Unharmed));
    assert!(began.elapsed() <= seconds(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hang_that_has_hit_its_last_pass_can_still_be_disarmed() {
    let faults = Faults::armable();
    let id = faults.arm(spec(POINT, Kind::Hang).first(1), "test").expect("armed").id;
    let mut held = Box::pin(faults.at(POINT, one));
    assert_eq!(polled(&mut held).await, None);
    assert_eq!(faults.armed().len(), 1, "it still holds somebody");
    assert!(!faults.is_armed() && !faults.concerns(&[POINT], one), "it hits nobody else");
    assert_eq!(pass(&faults, POINT, &one()).await, Seen::Nothing);
    let next = faults.arm(spec(POINT, Kind::Drop), "test").expect("armed");
    assert_eq!(pass(&faults, POINT, &one()).await, seen_of(&next), "nor when another fault is armed there");
    assert!(faults.disarm(id));
    assert_eq!(timeout(seconds(1), held).await, Ok(Ok(Pass::Unharmed)));
}

#[tokio::test(start_paused = true)]
async fn a_hang_that_has_hit_its_last_pass_is_gone_when_that_one_is_given_up() {
    let faults = Faults::armable();
    let id = faults.arm(spec(POINT, Kind::Hang).first(1), "test").expect("armed").id;
    assert!(timeout(seconds(1), faults.at(POINT, one)).await.is_err());
    assert!(faults.armed().is_empty());
    assert!(!faults.disarm(id));
}

#[tokio::test]
async fn a_fault_that_has_hit_its_last_pass_is_gone() {
    let faults = Faults::armable();
    let id = faults.arm(spec(POINT, Kind::Error).first(2), "test").expect("armed").id;
    assert!(faults.at(POINT, one).await.is_err());
    assert_eq!(faults.armed().into_iter().map(|armed| (armed.id, armed.hits)).collect::<Vec<_>>(), [(id, 1)]);
    assert!(faults.at(POINT, one).await.is_err());
    assert!(!faults.is_armed() && faults.armed().is_empty() && !faults.disarm(id));
}

#[tokio::test]
async fn a_disarmed_fault_is_gone_and_its_hits_stay_counted() {
    let faults = Faults::armable();
    let clone = faults.clone();
    let one_id = faults.arm(spec(POINT, Kind::Error), "test").expect("armed").id;
    let drops = faults.arm(spec(FaultPoint::HttpIn, Kind::Drop), "test").expect("armed").id;
    assert_eq!(clone.at(POINT, one).await, Err(Injected { point: POINT, fault_id: one_id }));
    assert_eq!((clone.disarm(one_id), clone.disarm(one_id)), (true, false));
    assert_eq!(faults.at(POINT, one).await, Ok(Pass::Unharmed));
    assert_eq!(faults.at(FaultPoint::HttpIn, one).await, Ok(Pass::Drop));
    assert_eq!((faults.disarm_all(), faults.disarm_all()), (1, 0));
    assert_eq!(faults.at(FaultPoint::HttpIn, one).await, Ok(Pass::Unharmed));

    let again = faults.arm(spec(POINT, Kind::Error), "test").expect("armed").id;
    assert!(again > drops, "an id is never given twice");
    assert!(faults.at(POINT, one).await.is_err());
    let hits: Vec<_> = faults.hits().into_iter().collect();
    assert_eq!(hits, [((FaultPoint::HttpIn, Kind::Drop), 1), ((POINT, Kind::Error), 2)]);
}

#[tokio::test]
async fn disarming_one_of_two_scopes_leaves_the_other_armed() {
    let faults = Faults::armable();
    let arm = |customer: &str| {
        let spec = spec(POINT, Kind::Decline).scope(Scope::default().customer(customer));
        faults.arm(spec, "test").expect("armed").id
    };
    let (first, _) = (arm("one"), arm("two"));
    assert!(faults.disarm(first) && faults.is_armed());
    assert_eq!(faults.at(POINT, one).await, Ok(Pass::Unharmed));
    assert_eq!(faults.at(POINT, || Subject::default().customer("two")).await, Ok(Pass::Decline));
}
