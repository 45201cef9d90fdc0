//! What clients asked for and were told, kept outside the suite: the evidence against which its database is held.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use uuid::Uuid;

/// How a client behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// Repeats the request under the same key until it is answered.
    Insists,
    /// Sends the request twice at once, to different replicas, and insists.
    Doubles,
    /// Hangs up in the middle of its first request, and insists.
    HangsUp,
    /// Hangs up in the middle of its only request and never comes back.
    WalksAway,
    /// Asks for what does not exist, and has to be refused.
    Errs,
}

/// Everything about one idempotency key.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    pub key: String,
    pub customer_id: String,
    pub conduct: Conduct,
    pub payment_method: String,
    /// When the request should be sent, in milliseconds of the run.
    pub due_ms: u64,
    /// How often it was sent.
    pub requests: u32,
    /// The orders it was acknowledged with: one, however often it was sent.
    pub acknowledged: Vec<Uuid>,
    pub acknowledged_ms: Option<u64>,
    /// The status with which it was refused for good.
    pub refused: Option<u16>,
    /// A good card, enough stock, and nobody cancels.
    pub has_to_be_confirmed: bool,
    pub wants_to_cancel: bool,
    /// The client was told that the order is cancelled.
    pub cancelled: bool,
}

/// All records of a run, and the clock that they are dated by.
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

    /// The beginning of the run on this machine's clock, in milliseconds since 1970: what the database's times are
    /// compared with.
    pub fn epoch_ms(&self) -> i64 {
        let since = self.began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// Adds what is known of a key, once nothing more is going to be.
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
