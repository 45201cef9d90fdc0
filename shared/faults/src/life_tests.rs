//! No kind of fault acts after its expiry, its disarming or its last hit, and no pass is delayed longer. `model_tests` compares
//! the armed faults and their hits with a model.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep_until, timeout};

use crate::{
    FaultPoint, Faults, Kind, Pass, Subject,
    hit_tests::{Seen, pass, seen_of, spec},
};

const POINT: FaultPoint = FaultPoint::GatewayCall;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn one() -> Subject {
    Subject::default().customer("one")
}

/// Whether the pass is still delayed.
async fn is_delayed(pass: &mut (impl Future + Unpin)) -> bool {
    timeout(Duration::ZERO, pass).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn every_kind_acts_until_its_fault_expires_and_not_after() {
    for kind in Kind::ALL {
        let (faults, began) = (Faults::armable(), Instant::now());
        let armed = faults.arm(spec(POINT, kind).expires_in(30), "test").expect("armed");
        if kind != Kind::Crash {
            advance(seconds(28)).await;
            assert_eq!(pass(&faults, POINT, &one()).await, seen_of(&armed), "{kind:?}");
            assert!(faults.is_armed());
        }
        let hits = faults.hits();
        sleep_until(began + seconds(30)).await;
        assert_eq!(pass(&faults, POINT, &one()).await, Seen::Nothing, "{kind:?}");
        assert!(!faults.is_armed() && faults.armed().is_empty() && faults.hits() == hits);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hang_and_a_latency_end_when_their_fault_expires() {
    for delay in [spec(POINT, Kind::Hang), spec(POINT, Kind::Latency).latency(30_000)] {
        let faults = Faults::armable();
        faults.arm(delay.expires_in(30), "test").expect("armed");
        advance(seconds(10)).await;
        let began = Instant::now();
        assert_eq!(timeout(seconds(100), faults.at(POINT, one)).await, Ok(Ok(Pass::Unharmed)));
        assert!((seconds(20)..seconds(21)).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!(faults.armed().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hang_and_a_latency_end_when_their_fault_is_disarmed() {
    for kind in [Kind::Hang, Kind::Latency] {
        let faults = Faults::armable();
        let id = faults.arm(spec(POINT, kind), "test").expect("armed").id;
        let other = faults.arm(spec(POINT, kind), "test").expect("armed").id;
        let mut held = [Box::pin(faults.at(POINT, one)), Box::pin(faults.at(POINT, one))];
        for pass in &mut held {
            assert!(is_delayed(pass).await);
        }
        assert!(faults.disarm(other));
        for pass in &mut held {
            assert!(is_delayed(pass).await, "another fault delays it");
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
async fn a_hang_can_be_disarmed_after_its_last_hit() {
    let faults = Faults::armable();
    let id = faults.arm(spec(POINT, Kind::Hang).first(1), "test").expect("armed").id;
    let mut held = Box::pin(faults.at(POINT, one));
    assert!(is_delayed(&mut held).await);
    assert_eq!(faults.armed().len(), 1, "it still delays a pass");
    assert!(!faults.is_armed() && !faults.concerns(&[POINT], one), "it hits no other pass");
    assert_eq!(pass(&faults, POINT, &one()).await, Seen::Nothing);
    let next = faults.arm(spec(POINT, Kind::Drop), "test").expect("armed");
    assert_eq!(pass(&faults, POINT, &one()).await, seen_of(&next), "nor when another fault is armed there");
    assert!(faults.disarm(id));
    assert_eq!(timeout(seconds(1), held).await, Ok(Ok(Pass::Unharmed)));
}

#[tokio::test(start_paused = true)]
async fn a_hang_is_gone_when_its_last_pass_is_cancelled() {
    let faults = Faults::armable();
    let id = faults.arm(spec(POINT, Kind::Hang).first(1), "test").expect("armed").id;
    assert!(timeout(seconds(1), faults.at(POINT, one)).await.is_err());
    assert!(faults.armed().is_empty());
    assert!(!faults.disarm(id));
}
