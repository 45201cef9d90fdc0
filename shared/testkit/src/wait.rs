//! Waiting for something to become true, instead of sleeping and hoping.

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::panic::Location;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Asks every 10 ms until the answer is `true`, `Some` or such an answer in an `Ok`, and returns what it holds.
///
/// An `Err` means "not yet"; the last one is part of the error, as is the place that waited.
/// A probe that takes longer than the limit is not waited for.
#[track_caller]
pub fn eventually<A: Answer>(
    limit: Duration,
    mut probe: impl AsyncFnMut() -> A,
) -> impl Future<Output = anyhow::Result<A::Value>> {
    let place = Location::caller();
    async move {
        let start = Instant::now();
        let mut reason = "the probe has not answered".to_owned();
        while let Some(left) = limit.checked_sub(start.elapsed()) {
            match tokio::time::timeout(left, probe()).await.map(Answer::settle) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(why)) => reason = why,
                Err(_) => break,
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        anyhow::bail!("{place} waited {limit:?} in vain: {reason}")
    }
}

/// What a probe of [`eventually`] may answer.
pub trait Answer {
    /// What is known once the wait is over.
    type Value;

    /// The value, or why it is not there yet.
    fn settle(self) -> Result<Self::Value, String>;
}

impl Answer for () {
    type Value = ();

    fn settle(self) -> Result<(), String> {
        Ok(())
    }
}

impl Answer for bool {
    type Value = ();

    fn settle(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("still false".to_owned()) }
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn settle(self) -> Result<T, String> {
        self.ok_or_else(|| "still None".to_owned())
    }
}

impl<A: Answer, E: Display> Answer for Result<A, E> {
    type Value = A::Value;

    fn settle(self) -> Result<A::Value, String> {
        match self {
            Ok(answer) => answer.settle(),
            Err(error) => Err(format!("{error:#}")),
        }
    }
}

/// A port on which nobody listens, and which no other test process is given while this one runs.
///
/// It lies below the range from which outgoing connections take theirs, so that a server which is stopped for a while
/// finds its port free when it comes back.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    // Several test processes run at a time, so each begins somewhere else.
    let random = RandomState::new().build_hasher().finish() % u64::from(COUNT);
    let start = u16::try_from(random).unwrap_or(0);
    let _ = NEXT.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed);
    loop {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        if reserve(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Takes the port among test processes until this one ends. A port that is free at this moment may be another
/// process's, whose server is just about to listen.
fn reserve(port: u16) -> bool {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let path = std::env::temp_dir().join(format!("suite-test-port-{port}.lock"));
    let Ok(file) = File::options().create(true).append(true).open(path) else { return false };
    if file.try_lock().is_err() {
        return false;
    }
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    true
}
