//! The requests of the clients and the answers that they got, recorded outside of the suite and compared with its database.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use uuid::Uuid;

/// How a client behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// Repeats the request under the same key until it is answered.
    #[default]
    Insists,
    /// Sends the request twice at once, to different replicas, and then like `Insists`.
    Doubles,
    /// Aborts its first request, and then like `Insists`.
    HangsUp,
    /// Aborts its only request.
    WalksAway,
    /// Orders an unknown product, and has to be refused.
    Errs,
}

/// Everything about one idempotency key.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Record {
    pub key: String,
    pub customer_id: String,
    pub conduct: Conduct,
    pub payment_method: String,
    /// The due time of the request, in milliseconds of the run.
    pub due_ms: u64,
    /// How often it was sent.
    pub requests: u32,
    /// The acknowledged orders: at most one, however often the request was sent.
    pub acknowledged: Vec<Uuid>,
    pub acknowledged_ms: Option<u64>,
    /// The ends that answers named by their status, of an orchestrated order.
    pub ends: Vec<&'static str>,
    /// The status of a permanent refusal.
    pub refused: Option<u16>,
    /// A good card, enough stock, and no cancellation.
    pub has_to_be_confirmed: bool,
    /// The same of an orchestrated order, which any outage excuses.
    pub has_to_be_confirmed_if_undisturbed: bool,
    pub wants_to_cancel: bool,
    /// The cancellation was acknowledged.
    pub cancelled: bool,
}

/// All records of a run, and its clock.
#[derive(Debug)]
pub struct History {
    began: Instant,
    began_at: SystemTime,
    records: Mutex<Vec<Record>>,
}

impl Default for History {
    fn default() -> Self {
        History { began: Instant::now(), began_at: SystemTime::now(), records: Mutex::default() }
    }
}

impl History {
    /// Time since the run began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Since the run began, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        milliseconds(self.now())
    }

    /// The beginning of the run by this machine's clock, in milliseconds since 1970, to convert the database's times.
    pub fn epoch_ms(&self) -> i64 {
        let since = self.began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// Adds the final record of a key.
    pub fn add(&self, record: Record) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    pub fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes all records, a line of JSON each.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let lines: Result<Vec<String>, _> = self.records().iter().map(serde_json::to_string).collect();
        Ok(std::fs::write(path, lines?.join("\n"))?)
    }
}

/// Whole milliseconds.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
