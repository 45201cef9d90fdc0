//! The clients: an open load at a fixed rate, whether or not the suite keeps up. Every answer is recorded in the [`History`].

mod client;
mod plan;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::Instant};

use self::plan::OrderGenerator;
pub use self::plan::{PRODUCTS, PlannedOrder, SCARCE, plenty_sku, scarce_sku};
use crate::{
    history::{Conduct, History},
    nemesis::Tally,
    testbed::Testbed,
};

/// The parts of the workload that nemeses can change.
#[derive(Debug, Default)]
pub struct Pressure {
    /// A factor on the rate of orders.
    pub factor: AtomicU32,
    /// Whether most clients abort or double their requests.
    pub unruly: AtomicBool,
    /// No order is orchestrated: such orders are in no stream.
    pub by_events_only: AtomicBool,
    stopped: AtomicBool,
    /// Clients that still wait for an answer give up.
    given_up: AtomicBool,
}

impl Pressure {
    /// Stops the generation of orders.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

/// The shared state of a run.
#[derive(Debug)]
pub struct Run {
    pub testbed: Arc<Testbed>,
    pub history: History,
    pub pressure: Pressure,
    /// The faults so far.
    pub tally: Tally,
    /// The run has ended: supervisor and checks stop.
    pub over: AtomicBool,
}

impl Run {
    pub fn on(testbed: &Arc<Testbed>) -> Arc<Self> {
        Arc::new(Run {
            testbed: Arc::clone(testbed),
            history: History::default(),
            pressure: Pressure { factor: AtomicU32::new(1), ..Pressure::default() },
            tally: Tally::default(),
            over: AtomicBool::new(false),
        })
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Sends `rate` orders per second until it is stopped; returns the clients that still wait for an answer.
pub async fn send_orders(run: Arc<Run>, rate: u32, seed: u64) -> JoinSet<()> {
    let (mut clients, mut generator) = (JoinSet::new(), OrderGenerator::new(seed));
    let mut due = Instant::now();
    while !run.pressure.stopped.load(Ordering::Relaxed) {
        let factor = run.pressure.factor.load(Ordering::Relaxed).max(1);
        due += Duration::from_secs(1) / rate.max(1) / factor;
        tokio::time::sleep_until(due).await;
        let due_ms = run.history.now_ms().saturating_sub(crate::history::milliseconds(due.elapsed()));
        let mut planned = generator.next(run.pressure.unruly.load(Ordering::Relaxed));
        planned.orchestrated &= !run.pressure.by_events_only.load(Ordering::Relaxed);
        clients.spawn(client::run(Arc::clone(&run), planned, due_ms));
        while clients.try_join_next().is_some() {}
    }
    clients
}

/// Waits until every client has an answer; after the limit the others give up.
pub async fn wait_for_clients(mut clients: JoinSet<()>, run: &Run, limit: Duration) {
    let all = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(limit, all).await.is_err() {
        run.pressure.given_up.store(true, Ordering::Relaxed);
        while clients.join_next().await.is_some() {}
    }
}

/// Changes the price of one product every quarter of a second until the orders stop; returns the number of changes.
pub async fn change_prices(run: Arc<Run>, seed: u64) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut changed = 0;
    let suites = &run.testbed.suites;
    while !run.pressure.stopped.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let place = rng.random_range(0..suites.len());
        let sku = plenty_sku(rng.random_range(0..PRODUCTS));
        // Without an answer the change is not repeated.
        changed += u64::from(suites[place].change_price(&sku, rng.random_range(100..5_000)).await.is_ok());
    }
    changed
}

impl Conduct {
    fn insists(self) -> bool {
        !matches!(self, Conduct::WalksAway)
    }
}
