//! Waiting for a condition instead of sleeping.

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

/// Polls every 10 ms until the answer is `true`, `Some` or such an answer in an `Ok`, and returns its value.
///
/// An `Err` means "not yet"; the last one is part of the error, as is the caller's location. A probe that takes longer than the
/// limit is cancelled.
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
            match tokio::time::timeout(left, probe()).await.map(Answer::into_result) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(why)) => reason = why,
                Err(_) => break,
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        anyhow::bail!("{place} waited {limit:?} in vain: {reason}")
    }
}

/// The result of a probe of [`eventually`].
pub trait Answer {
    /// The value after the wait.
    type Value;

    /// The value, or why it is not available yet.
    fn into_result(self) -> Result<Self::Value, String>;
}

impl Answer for () {
    type Value = ();

    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl Answer for bool {
    type Value = ();

    fn into_result(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("still false".to_owned()) }
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn into_result(self) -> Result<T, String> {
        self.ok_or_else(|| "still None".to_owned())
    }
}

impl<A: Answer, E: Display> Answer for Result<A, E> {
    type Value = A::Value;

    fn into_result(self) -> Result<A::Value, String> {
        match self {
            Ok(answer) => answer.into_result(),
            Err(error) => Err(format!("{error:#}")),
        }
    }
}

/// A free port that no other test process gets while this one runs.
///
/// It lies below the range of ephemeral ports, so that a stopped server finds its port free at its next start.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    // Several test processes run concurrently, so each starts at another port.
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

/// Reserves the port among test processes until this one ends. A port that is free now may be reserved by another process, whose
/// server is about to listen.
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
