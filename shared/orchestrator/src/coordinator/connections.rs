//! The coordinator's share of its service's connections, and who waits for one of them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use messaging::StepError;
use prometheus_client::metrics::gauge::Gauge;
use sqlx::PgPool;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

/// Half of a pool's connections, in order of arrival. The others stay for the coordinator's lease and the service's other work.
pub(super) struct Connections {
    free: Semaphore,
    line: Mutex<Line>,
    waiting: Gauge,
}

#[derive(Default)]
struct Line {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl Connections {
    pub(super) fn half_of(pool: &PgPool, waiting: Gauge) -> Self {
        let half = (pool.options().get_max_connections() / 2).max(1);
        Connections { free: Semaphore::new(half as usize), line: Mutex::default(), waiting }
    }

    /// Waits for one.
    pub(super) async fn one(&self) -> Result<SemaphorePermit<'_>, StepError> {
        let _place = self.stand_in_line();
        self.free.acquire().await.map_err(StepError::failed)
    }

    /// For how long the first in the line has waited.
    pub(super) fn longest_wait(&self) -> Duration {
        self.line().since.first_key_value().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    fn stand_in_line(&self) -> Place<'_> {
        let mut line = self.line();
        let number = line.next;
        line.next += 1;
        line.since.insert(number, Instant::now());
        self.waiting.inc();
        Place { connections: self, number }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Place<'a> {
    connections: &'a Connections,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.connections.line().since.remove(&self.number);
        self.connections.waiting.dec();
    }
}
