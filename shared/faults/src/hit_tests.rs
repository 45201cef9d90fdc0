//! Which passes are hit: every kind at every point with every trigger, inside and outside its scope.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::{Armed, FaultPoint, FaultSpec, Faults, Guard, Hit, Injected, Kind, Pass, Scope, Subject};

const LATENCY: Duration = Duration::from_millis(250);
/// Longer than the latency, shorter than the duration of any fault.
const PASS_TIMEOUT: Duration = Duration::from_secs(1);

/// The observed outcome of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    Delay,
    NoEnd,
    Failure(Injected),
    Left(Pass),
}

pub(crate) async fn pass(faults: &Faults, point: FaultPoint, subject: &Subject) -> Seen {
    let began = Instant::now();
    let passed = timeout(PASS_TIMEOUT, faults.at(point, || subject.clone())).await;
    let took = began.elapsed();
    match passed {
        Err(_) => Seen::NoEnd,
        Ok(Err(injected)) => Seen::Failure(injected),
        Ok(Ok(Pass::Unharmed)) if took.is_zero() => Seen::Nothing,
        Ok(Ok(Pass::Unharmed)) => {
            assert!((LATENCY..LATENCY + Duration::from_millis(2)).contains(&took), "{took:?}");
            Seen::Delay
        }
        Ok(Ok(left)) => Seen::Left(left),
    }
}

pub(crate) fn seen_of(armed: &Armed) -> Seen {
    let Armed { id: fault_id, spec: FaultSpec { point, kind, .. }, .. } = *armed;
    match kind {
        Kind::Error => Seen::Failure(Injected { point, fault_id }),
        Kind::Latency => Seen::Delay,
        Kind::Hang => Seen::NoEnd,
        Kind::Crash => unreachable!("the process is gone"),
        Kind::Duplicate => Seen::Left(Pass::Duplicate { copies: 3 }),
        Kind::Drop => Seen::Left(Pass::Drop),
        Kind::Decline => Seen::Left(Pass::Decline),
    }
}

pub(crate) fn spec(point: FaultPoint, kind: Kind) -> FaultSpec {
    FaultSpec {
        latency_ms: (kind == Kind::Latency).then_some(250),
        copies: (kind == Kind::Duplicate).then_some(3),
        ..FaultSpec::new(point, kind)
    }
}

/// Every kind at every point where it can happen, except crashes, which have their own tests.
fn kinds_and_points() -> impl Iterator<Item = (FaultPoint, Kind)> {
    let at = |point: FaultPoint| point.kinds().iter().map(move |kind| (point, *kind));
    FaultPoint::ALL.into_iter().flat_map(at).filter(|(_, kind)| *kind != Kind::Crash)
}

fn subject() -> Subject {
    let skus = ["A", "B"];
    Subject::default().saga(Uuid::from_u128(1)).order(Uuid::from_u128(2)).customer("c").skus(skus).step("confirm_order")
}

#[tokio::test(start_paused = true)]
async fn every_kind_at_every_point_hits_the_passes_its_trigger_names() {
    type Trigger = fn(FaultSpec) -> FaultSpec;
    let triggers: [(Trigger, &str); 10] = [
        (|spec| spec, "xxxxxx"),
        (|spec| spec.every(1), "xxxxxx"),
        (|spec| spec.every(2), "-x-x-x"),
        (|spec| spec.every(3).skip(1), "---x--"),
        (|spec| spec.first(1), "x-----"),
        (|spec| spec.first(2).skip(3), "---xx-"),
        (|spec| spec.skip(5), "-----x"),
        (|spec| spec.skip(9), "------"),
        (|spec| spec.probability(1.0).skip(2), "--xxxx"),
        (|spec| spec.probability(0.0), "------"),
    ];
    for (point, kind) in kinds_and_points() {
        for (trigger, expected) in triggers {
            let faults = Faults::armable();
            let armed = faults.arm(trigger(spec(point, kind)), "test").expect("armed");
            for (number, hit) in expected.chars().enumerate() {
                let expected = if hit == 'x' { seen_of(&armed) } else { Seen::Nothing };
                assert_eq!(pass(&faults, point, &subject()).await, expected, "pass {number} of {armed:?}");
            }
            let hits = expected.matches('x').count() as u64;
            let total = faults.hits().get(&(point, kind)).copied().unwrap_or_default();
            assert_eq!(total, hits, "{armed:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_touches_nothing_outside_its_scope() {
    let scope = Scope::default();
    let scopes = [
        (scope.clone().saga(Uuid::from_u128(1)), subject().saga(Uuid::from_u128(9))),
        (scope.clone().order(Uuid::from_u128(2)), Subject { order_id: None, ..subject() }),
        (scope.clone().sku("B"), Subject { skus: vec!["A".to_owned(), "BB".to_owned()], ..subject() }),
        (scope.clone().customer("c"), subject().customer("d")),
        (scope.clone().step("confirm_order"), subject().step("release_stock")),
        (scope.sku("A").step("confirm_order"), subject().step("release_stock")),
    ];
    for (point, kind) in kinds_and_points() {
        for (scope, outsider) in scopes.iter().filter(|(scope, _)| scope.step.is_none() || point.knows_step()) {
            let faults = Faults::armable();
            let armed = faults.arm(spec(point, kind).every(2).scope(scope.clone()), "test").expect("armed");
            assert!(
                faults.concerns(&FaultPoint::ALL, subject) && !faults.concerns(&FaultPoint::ALL, || outsider.clone())
            );
            for expected in [Seen::Nothing, seen_of(&armed), Seen::Nothing] {
                assert_eq!(pass(&faults, point, outsider).await, Seen::Nothing, "{armed:?}");
                assert_eq!(pass(&faults, point, &subject()).await, expected, "{armed:?}");
            }
            for other in FaultPoint::ALL.into_iter().filter(|other| *other != point) {
                assert!(!faults.concerns(&[other], subject));
                assert_eq!(pass(&faults, other, &subject()).await, Seen::Nothing, "{armed:?}");
            }
            let now: Vec<_> = faults.armed().into_iter().map(|armed| (armed.passes, armed.hits)).collect();
            assert_eq!(now, [(3, 1)], "outsiders are not counted: {armed:?}");
        }
    }
}

#[tokio::test]
async fn the_subject_is_read_only_when_a_fault_is_armed_there() {
    let asked = Cell::new(0);
    let ask = || {
        asked.set(asked.get() + 1);
        Subject::default()
    };
    let faults = Faults::armable();
    let id = faults.arm(spec(FaultPoint::InStep, Kind::Error), "test").expect("armed").id;
    assert_eq!(Faults::none().at(FaultPoint::InStep, ask).await, Ok(Pass::Unharmed));
    assert_eq!(faults.at(FaultPoint::BeforeCommit, ask).await, Ok(Pass::Unharmed));
    assert_eq!(asked.get(), 0);
    assert!(faults.at(FaultPoint::InStep, ask).await.is_err());
    assert_eq!(asked.get(), 1);
    assert!(faults.disarm(id));
    assert_eq!(faults.at(FaultPoint::InStep, ask).await, Ok(Pass::Unharmed));
    assert_eq!(asked.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_recorded_before_the_fault_acts() {
    const JOURNAL: Duration = Duration::from_millis(100);
    for (point, kind) in kinds_and_points() {
        let faults = Faults::armable();
        let written = Arc::new(Mutex::new(Vec::new()));
        let journal = Arc::clone(&written);
        faults.on_hit(Arc::new(move |hit| {
            let journal = Arc::clone(&journal);
            Box::pin(async move {
                sleep(JOURNAL).await;
                journal.lock().expect("a lock").push((hit, Instant::now()));
            })
        }));
        faults.on_hit(Arc::new(|_| panic!("only the first sink is called")));
        let armed = faults.arm(spec(point, kind).skip(1), "test").expect("armed");
        assert_eq!(pass(&faults, point, &subject()).await, Seen::Nothing);
        assert!(written.lock().expect("a lock").is_empty(), "a spared pass is no hit");

        let began = Instant::now();
        let acted = timeout(PASS_TIMEOUT, faults.at(point, subject)).await;
        let took = began.elapsed();
        let hit = Hit { fault_id: armed.id, point, kind, subject: subject() };
        assert_eq!(*written.lock().expect("a lock"), [(hit, began + JOURNAL)], "{armed:?}");
        match kind {
            Kind::Latency => assert!(took >= JOURNAL + LATENCY, "{took:?}"),
            Kind::Hang => assert!(acted.is_err()),
            _ => assert_eq!(took, JOURNAL, "{armed:?}"),
        }
    }
}

#[test]
fn only_the_named_mechanisms_are_off() {
    let faults = Faults::armable_without(vec![Guard::Inbox]);
    assert!(faults.is_armable() && faults.without(Guard::Inbox) && !faults.without(Guard::Outbox));
    for guard in Guard::ALL {
        assert!(!Faults::none().without(guard) && !Faults::armable().without(guard));
    }
}
