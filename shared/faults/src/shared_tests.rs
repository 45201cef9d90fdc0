//! Faults shared by all replicas of a service hit the same passes as in a single process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Barrier, task::yield_now};

use crate::{Armed, FaultPoint, FaultSpec, Faults, Injected, Kind, Pass, Subject};

const POINT: FaultPoint = FaultPoint::InStep;

fn error() -> FaultSpec {
    FaultSpec::new(POINT, Kind::Error)
}

/// Replicas that share a fault and number its passes together.
fn replicas(count: usize, spec: FaultSpec) -> (Vec<Faults>, Armed) {
    let passes = Arc::new(AtomicU64::new(0));
    let replicas: Vec<Faults> = (0..count).map(|_| Faults::armable()).collect();
    let armed = replicas[0].draft(spec, "test").expect("a draft");
    for replica in &replicas {
        let passes = Arc::clone(&passes);
        replica.count_with(Arc::new(move |_| {
            let passes = Arc::clone(&passes);
            Box::pin(async move {
                let number = passes.fetch_add(1, Ordering::SeqCst) + 1;
                yield_now().await;
                Some(number)
            })
        }));
        assert!(replica.hold(&armed, armed.lasts()));
    }
    (replicas, armed)
}

async fn is_hit(faults: &Faults) -> bool {
    faults.at(POINT, Subject::default).await.is_err()
}

/// Which passes are hit, taken by the replicas in turn.
async fn in_turn(replicas: &[Faults], passes: usize) -> String {
    let mut seen = String::new();
    for replica in replicas.iter().cycle().take(passes) {
        seen.push(if is_hit(replica).await { 'x' } else { '-' });
    }
    seen
}

#[tokio::test]
async fn first_every_and_skip_count_the_passes_of_all_replicas() {
    for (spec, expected) in [
        (error(), "xxxxxxxx"),
        (error().first(2), "xx------"),
        (error().first(3).skip(2), "--xxx---"),
        (error().every(3), "--x--x--"),
        (error().skip(5), "-----xxx"),
    ] {
        let (three, _) = replicas(3, spec.clone());
        assert_eq!(in_turn(&three, 8).await, expected, "{spec:?}");
    }
}

#[tokio::test]
async fn a_probability_hits_the_same_passes_in_any_replica() {
    let spec = error().probability(0.4).seed(7);
    let alone = Faults::armable();
    alone.arm(spec.clone(), "test").expect("armed");
    let (three, _) = replicas(3, spec);
    assert_eq!(in_turn(&three, 200).await, in_turn(&[alone], 200).await);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test waits for each of its tasks")]
async fn concurrent_passes_are_hit_exactly_as_often_as_specified() {
    for round in 0..50 {
        let (two, _) = replicas(2, error().first(3));
        let start = Arc::new(Barrier::new(10));
        let passes: Vec<_> = (0..10)
            .map(|n| {
                let (replica, start) = (two[n % 2].clone(), Arc::clone(&start));
                tokio::spawn(async move {
                    start.wait().await;
                    is_hit(&replica).await
                })
            })
            .collect();
        let mut hits = 0;
        for pass in passes {
            hits += usize::from(pass.await.expect("a pass"));
        }
        assert_eq!(hits, 3, "in round {round}");
        assert_eq!(two.iter().flat_map(Faults::armed).map(|armed| armed.passes).filter(|p| *p < 3).count(), 0);
    }
}

#[tokio::test]
async fn without_a_number_a_replica_counts_alone() {
    let faults = Faults::armable();
    faults.count_with(Arc::new(|_| Box::pin(async { None })));
    let armed = faults.draft(error().first(2), "test").expect("a draft");
    assert!(faults.hold(&armed, armed.lasts()));
    assert_eq!(in_turn(&[faults], 4).await, "xx--");
}

#[tokio::test]
async fn a_fault_of_one_process_is_not_counted_by_others() {
    let faults = Faults::armable();
    faults.count_with(Arc::new(|_| Box::pin(async { panic!("counted") })));
    let armed = faults.arm(error().first(1), "test").expect("armed");
    let injected = Injected { point: POINT, fault_id: armed.id };
    assert_eq!(faults.at(POINT, Subject::default).await, Err(injected));
    assert!(!armed.shared);
}

#[tokio::test]
async fn a_fault_that_is_gone_does_not_come_back() {
    let faults = Faults::armable();
    let armed = faults.draft(error(), "test").expect("a draft");
    assert!(faults.hold(&armed, armed.lasts()) && faults.hold(&armed, armed.lasts()));
    assert_eq!(faults.armed().len(), 1, "armed once, however often it is announced");
    assert!(faults.disarm(armed.id));
    assert!(!faults.hold(&armed, armed.lasts()));
    assert!(faults.armed().is_empty());
}

#[tokio::test]
async fn a_fault_is_gone_after_its_last_pass_elsewhere() {
    let faults = Faults::armable();
    let armed = faults.draft(error().first(2).skip(1), "test").expect("a draft");
    faults.hold(&armed, armed.lasts());
    faults.seen(armed.id, 2);
    assert!(faults.is_armed());
    faults.seen(armed.id, 3);
    assert!(!faults.is_armed() && faults.armed().is_empty());
    assert_eq!(faults.at(POINT, Subject::default).await, Ok(Pass::Unharmed));
}

#[tokio::test(start_paused = true)]
async fn a_late_replica_holds_a_fault_for_the_remaining_time() {
    let faults = Faults::armable();
    let armed = faults.draft(error().expires_in(60), "test").expect("a draft");
    assert!(faults.hold(&armed, Duration::from_secs(5)));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!faults.is_armed());
}

#[test]
fn drafts_are_validated_and_have_ids_that_fit_json() {
    assert!(Faults::none().draft(error(), "test").is_err());
    let faults = Faults::armable();
    assert!(faults.draft(error().first(0), "test").is_err());
    let armed = faults.draft(error(), "test").expect("a draft");
    assert!(armed.shared && armed.id > 1 << 32 && armed.id < 1 << 53, "{}", armed.id);
    let text = serde_json::to_string(&armed).expect("JSON");
    assert_eq!(serde_json::from_str::<Armed>(&text).expect("what was written"), armed);
}
