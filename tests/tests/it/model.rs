//! Random walks through the model, with each step taken by the real suite as well: events in any order, duplicated, late or lost,
//! cancellations and timeouts at any time, two orders that compete for one unit. After every step the rows of all services and
//! their published events must match the model; and at rest, every order has ended.

mod by_hand;
mod seen;

use std::{collections::BTreeMap, sync::Mutex};

use contracts::order_fulfillment::SAGA;
use model::{Action, Bounds, Guards, Saga, World, mail::Kind, payment::Side};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use stateright::Model;

use self::{by_hand::ByHand, seen::Seen};
use crate::prelude::*;

/// Why no test of this file audits.
const UNAUDITED: &str = "the walk replaces relays and broker, so the streams are empty";

/// Draws from the enabled actions: which kind, and which of them.
type Choice = (u8, u8);

const CASES: u32 = 100;
const TIME: Duration = Duration::from_secs(35);
/// Fewer walks prove too little, however busy the machine.
const LEAST_WALKS: u32 = 20;

/// The depth of a walk is unlimited, so its bounds are wide; payment's phases are taken together, because a test of one process
/// cannot stop between them.
const BOUNDS: Bounds = Bounds {
    orders: 2,
    stock: 1,
    faults: 6,
    retries: 8,
    max_attempts: SAGA.compensation.max_attempts,
    replicas: 1,
    detectors: 2,
    cancels: true,
    bad_cards: true,
};

/// An action, with the index of its order.
type Step = (usize, Action);

/// A walk: the state of suite and model, and the steps so far.
struct Walk<'s> {
    saga: Saga,
    world: World,
    suite: &'s ByHand,
    case: by_hand::Case,
    steps: Vec<Step>,
}

impl<'s> Walk<'s> {
    async fn begin(suite: &'s ByHand, stock: i8, good_cards: [bool; 2]) -> anyhow::Result<Walk<'s>> {
        Self::with(suite, Saga::new(Bounds { stock, ..BOUNDS }), good_cards).await
    }

    async fn with(suite: &'s ByHand, saga: Saga, good_cards: [bool; 2]) -> anyhow::Result<Walk<'s>> {
        let case = suite.begin(saga.bounds.stock, &good_cards).await?;
        Ok(Walk { saga, world: World::new(&saga.bounds, &good_cards), suite, case, steps: Vec::new() })
    }

    /// The enabled actions that a test can carry out.
    fn enabled(&self) -> Vec<Step> {
        let mut actions = Vec::new();
        self.saga.actions(&self.world, &mut actions);
        actions.retain(|(_, a)| !matches!(a, Action::Crash(..) | Action::LateCharge | Action::LateVoid));
        actions
    }

    /// Most steps move the orders forward; the others are any enabled action.
    async fn step(&mut self, (kind, which): Choice) -> anyhow::Result<bool> {
        let enabled = self.enabled();
        let forward: Vec<Step> = enabled.iter().copied().filter(|(_, a)| is_traffic(*a)).collect();
        let from = if kind % 6 != 0 && !forward.is_empty() { forward } else { enabled };
        match from.get(usize::from(which) % from.len().max(1)) {
            Some(step) => self.take(*step).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes every action that must happen, until none is left.
    async fn rest(&mut self) -> Test {
        while let Some(step) = self.enabled().into_iter().find(|(_, a)| a.must_happen()) {
            self.take(step).await?;
        }
        ensure!(self.saga.is_at_rest(&self.world), "the walk stopped before the model was at rest");
        Ok(())
    }

    /// One step in both, and a comparison.
    async fn take(&mut self, step: Step) -> Test {
        self.steps.push(step);
        self.in_model(step)?;
        self.suite.take(&self.case, step).await?;
        for (order, fulfilment) in self.world.orders.iter().enumerate() {
            let real = self.suite.seen(&self.case, order).await?;
            let predicted = Seen::predicted(&self.world, fulfilment);
            ensure!(real == predicted, "order {order} is\n{real:?}\ninstead of the model's\n{predicted:?}");
        }
        Ok(())
    }

    fn in_model(&mut self, (order, action): Step) -> Test {
        self.advance((order, action))?;
        match action {
            Action::FindDue => self.advance((order, Action::DetectTimeout))?,
            Action::Take(side, _) => {
                while self.works(order, side) {
                    self.advance((order, Action::Work(side, 0)))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn works(&self, order: usize, side: Side) -> bool {
        self.world.orders[order].workers[side as usize].iter().any(|worker| !worker.is_idle())
    }

    fn advance(&mut self, step: Step) -> Test {
        self.world = self.saga.next_state(&self.world, step).context("the model has no such step")?;
        for property in self.saga.properties() {
            let always = property.expectation == stateright::Expectation::Always;
            ensure!(!always || (property.condition)(&self.saga, &self.world), "violated: {}", property.name);
        }
        Ok(())
    }
}

/// Messages in flight, rather than deadlines, people and faults.
fn is_traffic(action: Action) -> bool {
    matches!(action, Action::Publish(..) | Action::Deliver(..) | Action::Take(..))
}

/// Walks to the end, and returns the landmarks on the way.
async fn walk(suite: &ByHand, stock: i8, good_cards: [bool; 2], choices: &[Choice]) -> anyhow::Result<Vec<String>> {
    let before = suite.money_kept().await?;
    let mut walk = Walk::begin(suite, stock, good_cards).await?;
    let taken = async {
        for choice in choices {
            if !walk.step(*choice).await? {
                break;
            }
        }
        walk.rest().await
    };
    let taken = taken.await;
    taken.with_context(|| format!("after {:#?}", walk.steps))?;
    let kept = suite.money_kept().await? - before;
    let predicted = Seen::money(&walk.world);
    ensure!(kept == predicted, "{kept} was kept instead of {predicted}: {:#?}", walk.steps);
    let ends = walk.world.orders.iter().map(|order| order.saga.status.to_string());
    Ok(walk.steps.iter().map(|(_, action)| landmark(*action)).chain(ends).collect())
}

/// The kind of the step; of a delivery also the reader.
fn landmark(action: Action) -> String {
    match action {
        Action::Deliver(id, place) => format!("{:?}", id.0.readers()[place]),
        Action::Take(side, _) => format!("{side:?}"),
        other => format!("{other:?}").split('(').next().unwrap_or_default().to_owned(),
    }
}

/// Every step of the saga was taken, events were duplicated, and orders ended in both ways.
fn went_everywhere(seen: &BTreeMap<String, usize>) -> Test {
    let places = "ReserveStock Charge ConfirmOrder CancelUnfillableOrder CancelUnpaidOrder CancelTimedOutOrder \
        ReleaseStock Refund FindDue RetryCompensation Cancel Duplicate COMPLETED COMPENSATED";
    let missed: Vec<_> = places.split(' ').filter(|place| !seen.contains_key(*place)).collect();
    ensure!(missed.is_empty(), "no walk came to {missed:?}: {seen:?}");
    Ok(())
}

#[test]
fn random_walks_of_suite_and_model_agree() -> Test {
    let runtime = tokio::runtime::Runtime::new()?;
    let suite = runtime.block_on(suite_tests::audited(Some(UNAUDITED), ByHand::new()))?;
    let seed = std::env::var("MODEL_SEED").ok().map_or_else(rand_seed, |text| Ok(text.parse::<u64>()?))?;
    println!("MODEL_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let began = std::time::Instant::now();
    let seen = Mutex::new(BTreeMap::<String, usize>::new());
    let walks = std::cell::Cell::new(0);
    // Enough units, and good cards more often than not; otherwise few orders would be confirmed.
    let stock = prop::sample::select(vec![0i8, 1, 1, 2, 2, 2]);
    let good_cards = prop::array::uniform2(prop::bool::weighted(0.75));
    let strategy = (stock, good_cards, prop::collection::vec(any::<Choice>(), 0..60));
    let ran = runner.run(&strategy, |(stock, good_cards, choices)| {
        // On a busy machine the walks go on until every landmark was reached.
        if began.elapsed() > TIME && went_everywhere(&seen.lock().expect("no walk panics with it")).is_ok() {
            return Ok(());
        }
        let walked = runtime.block_on(walk(&suite, stock, good_cards, &choices));
        let landmarks = walked.map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
        walks.set(walks.get() + 1);
        let mut seen = seen.lock().expect("no walk panics with it");
        landmarks.into_iter().for_each(|place| *seen.entry(place).or_default() += 1);
        Ok(())
    });
    drop(suite);
    ran.map_err(|error| anyhow::anyhow!("MODEL_SEED={seed}: {error}"))?;
    let seen = seen.into_inner().expect("no walk panics with it");
    println!("{} walks: {seen:?}", walks.get());
    ensure!(walks.get() >= LEAST_WALKS, "{} walks in {TIME:?} say nothing", walks.get());
    went_everywhere(&seen)
}

fn rand_seed() -> anyhow::Result<u64> {
    let (seed, _) = Uuid::now_v7().as_u64_pair();
    Ok(seed)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn giving_up_and_resuming_match_the_model() -> Test {
    let suite = ByHand::new().await?;
    let saga = Saga::new(Bounds { faults: 20, ..BOUNDS });
    let mut walk = Walk::with(&suite, saga, [true, true]).await?;
    walk.take((0, Action::Cancel)).await?;
    ensure!(!walk.enabled().contains(&(0, Action::RetryCompensation)), "the cancellation is not published");
    for published in 0..=u8::try_from(BOUNDS.max_attempts)? {
        // As if both participants had made a dead letter of it.
        let cancelled = (Kind::OrderCancelled, published);
        walk.take((0, Action::Publish(cancelled))).await?;
        for place in 0..2 {
            let retries = walk.enabled().contains(&(0, Action::RetryCompensation));
            ensure!(!retries, "a participant has not processed the cancellation");
            walk.take((0, Action::Lose(cancelled, place))).await?;
        }
        walk.take((0, Action::RetryCompensation)).await?;
    }
    ensure!(walk.world.orders[0].history.given_up, "it is given up after {} attempts", BOUNDS.max_attempts);
    walk.take((0, Action::Resume)).await?;
    walk.rest().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_model_without_a_guard_differs_from_the_suite() -> Test {
    let suite = ByHand::new().await?;
    let created = (Kind::OrderCreated, 0);
    let cancelled = (Kind::OrderCancelled, 0);
    let twice = [Action::Publish(created), Action::DeliverUnacknowledged(created, 0), Action::Deliver(created, 0)];
    let early = [Action::Cancel, Action::Publish(cancelled), Action::Deliver(cancelled, 0)];
    let cases = [
        (Guards { inbox: false, ..Guards::ALL }, twice),
        (Guards { tombstones: false, ..Guards::ALL }, early),
        (Guards { undo_confirmations: false, ..Guards::ALL }, early),
    ];
    for (guards, steps) in cases {
        let mut sound = Walk::begin(&suite, 1, [true, true]).await?;
        let mut lacking = Walk::with(&suite, Saga { guards, ..sound.saga }, [true, true]).await?;
        let mut differs = false;
        for action in steps {
            sound.take((0, action)).await?;
            differs = differs || lacking.take((0, action)).await.is_err();
        }
        ensure!(differs, "suite and model agree without a guard: {guards:?}");
    }
    Ok(())
}
