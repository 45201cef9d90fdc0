//! Compares the registry with a naive model, over random faults, passes and waits; and tests seeds.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::time::advance;

use crate::{FaultPoint, FaultSpec, Faults, Injected, Kind, Scope, Subject};

const POINTS: [FaultPoint; 2] = [FaultPoint::InStep, FaultPoint::BeforeCommit];

#[derive(Debug, Clone)]
enum Action {
    Arm(FaultSpec),
    Pass(FaultPoint, &'static str),
    /// The fault at this index of all faults armed so far.
    Disarm(prop::sample::Index),
    DisarmAll,
    /// In seconds.
    Wait(u64),
}

/// A fault with the numbers of all its passes and hits.
struct Modelled {
    spec: FaultSpec,
    expires: u64,
    disarmed: bool,
    passes: u32,
    hits: u32,
}

impl Modelled {
    fn is_active(&self, now: u64) -> bool {
        !self.disarmed && now < self.expires && self.spec.first.is_none_or(|first| self.hits < first)
    }

    fn is_for(&self, point: FaultPoint, customer: &str) -> bool {
        self.spec.point == point && self.spec.scope.customer_id.as_deref().is_none_or(|id| id == customer)
    }

    fn is_hit_by_next_pass(&mut self) -> bool {
        self.passes += 1;
        let skip = self.spec.skip.unwrap_or(0);
        let hit = self.passes > skip && (self.passes - skip).is_multiple_of(self.spec.every.unwrap_or(1));
        self.hits += u32::from(hit);
        hit
    }
}

async fn agree(actions: Vec<Action>) -> Result<(), TestCaseError> {
    let faults = Faults::armable();
    let mut model: Vec<Modelled> = Vec::new();
    let mut now = 0;
    for action in actions {
        match action {
            Action::Arm(spec) => {
                let armed = faults.arm(spec.clone(), "test").expect("armed");
                prop_assert_eq!(armed.id, model.len() as u64 + 1);
                let expires = now + u64::from(spec.expires_in_seconds.unwrap_or(60));
                model.push(Modelled { spec, expires, disarmed: false, passes: 0, hits: 0 });
            }
            Action::Pass(point, customer) => {
                let subject = Subject::default().customer(customer);
                let mut meant = (1..).zip(&mut model).filter(|(_, fault)| fault.is_active(now));
                let mut meant = meant.by_ref().filter(|(_, fault)| fault.is_for(point, customer)).peekable();
                prop_assert_eq!(faults.concerns(&[point], || subject.clone()), meant.peek().is_some());
                let hit = meant.find_map(|(id, fault)| fault.is_hit_by_next_pass().then_some(id));
                let passed = faults.at(point, || subject).await;
                prop_assert_eq!(passed.err(), hit.map(|fault_id| Injected { point, fault_id }));
            }
            Action::Disarm(place) if !model.is_empty() => {
                let place = place.index(model.len());
                prop_assert_eq!(faults.disarm(place as u64 + 1), model[place].is_active(now));
                model[place].disarmed = true;
            }
            Action::Disarm(_) => {}
            Action::DisarmAll => {
                prop_assert_eq!(faults.disarm_all(), model.iter().filter(|fault| fault.is_active(now)).count());
                model.iter_mut().for_each(|fault| fault.disarmed = true);
            }
            Action::Wait(seconds) => {
                advance(Duration::from_secs(seconds)).await;
                now += seconds;
            }
        }
        compare(&faults, &model, now)?;
    }
    Ok(())
}

fn compare(faults: &Faults, model: &[Modelled], now: u64) -> Result<(), TestCaseError> {
    let active = (1..).zip(model).filter(|(_, fault)| fault.is_active(now));
    let expected: Vec<(u64, u64, u64)> =
        active.map(|(id, fault)| (id, fault.passes.into(), fault.hits.into())).collect();
    let armed: Vec<_> = faults.armed().into_iter().map(|armed| (armed.id, armed.passes, armed.hits)).collect();
    prop_assert_eq!(faults.is_armed(), !expected.is_empty());
    prop_assert_eq!(armed, expected);
    for point in POINTS {
        let hits: u32 = model.iter().filter(|fault| fault.spec.point == point).map(|fault| fault.hits).sum();
        prop_assert_eq!(faults.hits().get(&(point, Kind::Error)).copied().unwrap_or(0), u64::from(hits));
    }
    Ok(())
}

fn spec() -> impl Strategy<Value = FaultSpec> {
    let trigger = prop_oneof![
        Just((None, None)),
        (1u32..4).prop_map(|every| (Some(every), None)),
        (1u32..4).prop_map(|first| (None, Some(first))),
    ];
    let customer = prop::option::of(prop::sample::select(&["one", "two"][..]));
    let point = prop::sample::select(&POINTS[..]);
    (point, trigger, prop::option::of(0u32..3), customer, prop::option::of(1u32..90)).prop_map(
        |(point, (every, first), skip, customer, expires_in_seconds)| FaultSpec {
            every,
            first,
            skip,
            scope: Scope { customer_id: customer.map(str::to_owned), ..Scope::default() },
            expires_in_seconds,
            ..FaultSpec::new(point, Kind::Error)
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let customers = prop::sample::select(&["one", "two", "three"][..]);
    prop_oneof![
        3 => spec().prop_map(Action::Arm),
        12 => (prop::sample::select(&POINTS[..]), customers).prop_map(|(point, who)| Action::Pass(point, who)),
        1 => any::<prop::sample::Index>().prop_map(Action::Disarm),
        1 => Just(Action::DisarmAll),
        2 => (0u64..40).prop_map(Action::Wait),
    ]
}

fn paused<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(future)
}

/// Which of these passes are hit.
async fn hits(probability: f64, seed: Option<u64>, passes: usize) -> (Vec<bool>, u64) {
    let faults = Faults::armable();
    let spec = FaultSpec { seed, ..FaultSpec::new(FaultPoint::InStep, Kind::Error).probability(probability) };
    let seed = faults.arm(spec, "test").expect("armed").spec.seed.expect("a seed");
    let mut hits = Vec::with_capacity(passes);
    for _ in 0..passes {
        hits.push(faults.at(FaultPoint::InStep, Subject::default).await.is_err());
    }
    (hits, seed)
}

proptest! {
    #[test]
    fn the_registry_agrees_with_a_naive_model(actions in vec(action(), 0..120)) {
        paused(agree(actions))?;
    }

    #[test]
    fn a_random_seed_can_be_repeated(probability in 0.0..=1.0, passes in 0usize..200) {
        let (drawn, given) = paused(async {
            let (drawn, seed) = hits(probability, None, passes).await;
            (drawn, hits(probability, Some(seed), passes).await.0)
        });
        prop_assert_eq!(drawn, given);
    }
}

#[test]
fn seeds_differ_in_hits_but_not_in_their_share() {
    let runs: Vec<Vec<bool>> = (0..20).map(|seed| paused(hits(0.3, Some(seed), 1000)).0).collect();
    for (seed, run) in runs.iter().enumerate() {
        let share = run.iter().filter(|hit| **hit).count();
        assert!((230..370).contains(&share), "{share} of 1000 with seed {seed}");
        assert!(!runs[..seed].contains(run));
    }
}

#[test]
fn random_seeds_differ() {
    let seeds: Vec<u64> = (0..3).map(|_| paused(hits(0.5, None, 0)).1).collect();
    assert!(seeds[0] != seeds[1] || seeds[1] != seeds[2], "{seeds:?}");
}
