//! The clients: as many a second as asked for, whether or not the suite keeps up. Whatever is told to them goes into the
//! [`History`].

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

pub use self::plan::{PRODUCTS, SCARCE, Wanted, Wishes, plenty_sku, scarce_sku};
use crate::{
    history::{Conduct, History},
    stage::Stage,
};

/// What nemeses may change about the workload while it runs.
#[derive(Debug)]
pub struct Pressure {
    /// Orders a second, times this.
    pub factor: AtomicU32,
    /// Most clients hang up or double their requests.
    pub unruly: AtomicBool,
    stopped: AtomicBool,
    hopeless: AtomicBool,
}

impl Default for Pressure {
    fn default() -> Self {
        Pressure {
            factor: AtomicU32::new(1),
            unruly: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            hopeless: AtomicBool::new(false),
        }
    }
}

impl Pressure {
    /// No new orders from now on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Clients who are still not answered give up.
    pub fn give_up(&self) {
        self.hopeless.store(true, Ordering::Relaxed);
    }

    fn is_hopeless(&self) -> bool {
        self.hopeless.load(Ordering::Relaxed)
    }
}

/// Sends orders at this rate, a second, until it is stopped; returns the clients who still wait for an answer.
pub async fn send_orders(
    stage: Arc<Stage>,
    history: Arc<History>,
    pressure: Arc<Pressure>,
    rate: u32,
    mut wishes: Wishes,
) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    let mut due = Instant::now();
    while !pressure.stopped.load(Ordering::Relaxed) {
        let factor = pressure.factor.load(Ordering::Relaxed).max(1);
        due += Duration::from_secs(1) / rate.max(1) / factor;
        tokio::time::sleep_until(due).await;
        let due_ms = history.now_ms().saturating_sub(crate::history::milliseconds(due.elapsed()));
        let wanted = wishes.next(pressure.unruly.load(Ordering::Relaxed));
        clients.spawn(client::live(Arc::clone(&stage), Arc::clone(&history), Arc::clone(&pressure), wanted, due_ms));
        while clients.try_join_next().is_some() {}
    }
    clients
}

/// Waits until every client is answered; those who are not within the limit give up.
pub async fn wait_for_clients(mut clients: JoinSet<()>, pressure: &Pressure, limit: Duration) {
    let all = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(limit, all).await.is_err() {
        pressure.give_up();
        while clients.join_next().await.is_some() {}
    }
}

/// Gives one product another price every quarter of a second, until no more orders are wanted; returns how often it did.
pub async fn change_prices(stage: Arc<Stage>, pressure: Arc<Pressure>, seed: u64) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut changed = 0;
    while !pressure.stopped.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let place = rng.random_range(0..stage.suites.len());
        let sku = plenty_sku(rng.random_range(0..PRODUCTS));
        // Who gets no answer changes another one.
        changed += u64::from(stage.suites[place].change_price(&sku, rng.random_range(100..5_000)).await.is_ok());
    }
    changed
}

impl Conduct {
    fn insists(self) -> bool {
        !matches!(self, Conduct::WalksAway)
    }
}
