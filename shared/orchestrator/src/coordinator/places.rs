//! A limited number of places, and who waits for one of them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use messaging::StepError;
use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

/// They are taken in order of arrival.
pub(super) struct Places {
    free: Semaphore,
    line: Mutex<Line>,
    waiting: Gauge,
}

#[derive(Default)]
struct Line {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl Places {
    /// `waiting` counts who waits, here and elsewhere.
    pub(super) fn new(number: usize, waiting: Gauge) -> Self {
        Places { free: Semaphore::new(number), line: Mutex::default(), waiting }
    }

    /// Waits for one.
    pub(super) async fn one(&self) -> Result<SemaphorePermit<'_>, StepError> {
        let _waiting = self.stand_in_line();
        self.free.acquire().await.map_err(StepError::failed)
    }

    /// For how long the first in the line has waited.
    pub(super) fn longest_wait(&self) -> Duration {
        self.line().since.first_key_value().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    fn stand_in_line(&self) -> Waiting<'_> {
        let mut line = self.line();
        let number = line.next;
        line.next += 1;
        line.since.insert(number, Instant::now());
        self.waiting.inc();
        Waiting { places: self, number }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting<'a> {
    places: &'a Places,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.places.line().since.remove(&self.number);
        self.places.waiting.dec();
    }
}
