//! Batches of replays: a set of entries, fixed at the request, replayed in growing waves. The first entry that fails again stops
//! the batch; the remaining entries stay pending.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, stream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    Batch, ReplayError, ReplayOutcome, Replays, Selection, Stop,
    entry::{self, By},
    progress,
    replay::{MAX_REPLAYS, replay_by},
};

/// The sizes of the waves; the last size is repeated.
pub const DEFAULT_RAMP: [i32; 4] = [1, 2, 5, 10];

/// How many entries of a wave are replayed concurrently. Each may use a connection, and the consumers need some.
const MAX_CONCURRENT: usize = 4;

/// The most entries of an automatic batch.
const MAX_AUTOMATIC_ENTRIES: i64 = 1000;

/// The batches that run in this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Batches {
    running: TaskTracker,
    stop: CancellationToken,
}

impl Batches {
    /// The batches stop when `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Batches { running: TaskTracker::new(), stop }
    }

    /// Returns when the service stops and the last batch has stored its progress.
    pub async fn wait(self) {
        self.stop.cancelled().await;
        self.running.close();
        self.running.wait().await;
    }
}

/// A request to replay entries.
#[derive(Debug, Clone)]
pub struct BatchRequest {
    pub actor: String,
    pub reason: Option<String>,
    pub selection: Selection,
    /// How many entries at most, the oldest first.
    pub limit: i64,
    /// The sizes of the waves; the last size is repeated. Not empty, none below 1.
    pub ramp: Vec<i32>,
}

/// Fixes the set of entries and starts to replay it, in a task that ends with the service.
pub async fn replay_batch(replays: &Replays, request: BatchRequest) -> Result<Batch, sqlx::Error> {
    let ids = entry::replayable(&replays.pool, &request.selection, request.limit, MAX_REPLAYS).await?;
    begin(replays, request, ids).await
}

/// Replays the entries whose attempts are exhausted, after the step's breaker has closed. `None` if there are none.
pub async fn auto_replay(replays: &Replays, step: &str) -> Result<Option<Batch>, sqlx::Error> {
    let reason = Some("attempts exhausted".to_owned());
    let request = BatchRequest {
        actor: "breaker".to_owned(),
        reason: Some("the breaker closed".to_owned()),
        selection: Selection { step: Some(step.to_owned()), reason, ..Selection::default() },
        limit: MAX_AUTOMATIC_ENTRIES,
        ramp: DEFAULT_RAMP.to_vec(),
    };
    // Once each: entries that fail again need an operator, who keeps the remaining replays.
    let ids = entry::replayable(&replays.pool, &request.selection, request.limit, 1).await?;
    if ids.is_empty() {
        return Ok(None);
    }
    begin(replays, request, ids).await.map(Some)
}

async fn begin(replays: &Replays, request: BatchRequest, ids: Vec<Uuid>) -> Result<Batch, sqlx::Error> {
    let replay_id = Uuid::now_v7();
    let batch = progress::insert(&replays.pool, replay_id, &request, &ids).await?;
    tracing::info!(%replay_id, entries = ids.len(), requested_by = request.actor, "replay of dead letters started");
    let by = By { actor: request.actor, reason: request.reason, replay_id: Some(replay_id) };
    replays.batches.running.spawn(run(replays.clone(), by, batch.clone()));
    Ok(batch)
}

/// The sizes of the waves of a batch. A size below 1 counts as 1.
pub fn waves(ramp: &[i32], selected: usize) -> Vec<usize> {
    let size =
        |wave: usize| ramp.get(wave).or(ramp.last()).map_or(1, |size| usize::try_from(*size).unwrap_or(1)).max(1);
    let mut left = selected;
    let mut waves = Vec::new();
    while left > 0 {
        let next = size(waves.len()).min(left);
        waves.push(next);
        left -= next;
    }
    waves
}

async fn run(replays: Replays, by: By, batch: Batch) {
    let replay_id = batch.replay_id;
    let stop = match replay_waves(&replays, &by, &batch).await {
        Ok(Ended::Finished(stop)) => stop,
        Ok(Ended::Expired) => {
            tracing::warn!(%replay_id, "the batch was without progress for too long, is shown as stopped, and ends");
            return;
        }
        Err(error) => Some(Stop { dead_letter_id: None, error: format!("the database is unavailable: {error}") }),
    };
    tracing::info!(%replay_id, stopped_by = ?stop, "replay of dead letters ended");
    if let Err(error) = progress::finish(&replays.pool, replay_id, stop.as_ref()).await {
        tracing::warn!(%replay_id, %error, "the end of the batch was not stored; the batch is shown as stopped after two minutes");
    }
}

enum Ended {
    Finished(Option<Stop>),
    /// It had no progress for too long and is shown as stopped.
    Expired,
}

async fn replay_waves(replays: &Replays, by: &By, batch: &Batch) -> Result<Ended, sqlx::Error> {
    let mut left = batch.ids.as_slice();
    for size in waves(&batch.ramp, batch.ids.len()) {
        let (wave, rest) = left.split_at(size.min(left.len()));
        left = rest;
        if !progress::touch(&replays.pool, batch.replay_id).await? {
            return Ok(Ended::Expired);
        }
        if let Some(stop) = replay_wave(replays, by, wave).await? {
            return Ok(Ended::Finished(Some(stop)));
        }
    }
    Ok(Ended::Finished(None))
}

/// Replays a wave, a few entries concurrently. After the first failure, or the service's stop, no further one is started.
async fn replay_wave(replays: &Replays, by: &By, wave: &[Uuid]) -> Result<Option<Stop>, sqlx::Error> {
    let halted = AtomicBool::new(false);
    let replay = |dead_letter_id: &Uuid| {
        let (dead_letter_id, halted) = (*dead_letter_id, &halted);
        async move {
            if halted.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let stop = match replays.batches.stop.is_cancelled() {
                true => Ok(Some(Stop { dead_letter_id: None, error: "the service was stopped".to_owned() })),
                false => replay_entry(replays, by, dead_letter_id).await,
            };
            if !matches!(stop, Ok(None)) {
                halted.store(true, Ordering::Relaxed);
            }
            stop
        }
    };
    let outcomes: Vec<_> = stream::iter(wave).map(replay).buffered(MAX_CONCURRENT).collect().await;
    outcomes.into_iter().find_map(Result::transpose).transpose()
}

/// Replays one entry; returns why the batch stops. An entry that is replayed elsewhere, or can no longer be replayed, is skipped.
async fn replay_entry(replays: &Replays, by: &By, entry: Uuid) -> Result<Option<Stop>, sqlx::Error> {
    match replay_by(replays, entry, by).await {
        Ok(ReplayOutcome::Resolved) => Ok(None),
        Ok(ReplayOutcome::FailedAgain { why, .. }) => Ok(Some(Stop { dead_letter_id: Some(entry), error: why })),
        Err(ReplayError::Database(error)) => Err(error),
        Err(skipped) => {
            tracing::info!(dead_letter_id = %entry, why = %skipped, "the batch skips an entry");
            if let Some(replay_id) = by.replay_id {
                progress::count_entry(&mut *replays.pool.acquire().await?, replay_id, None).await?;
            }
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_grow_along_the_ramp_and_repeat_its_end() {
        assert_eq!(waves(&DEFAULT_RAMP, 30), [1, 2, 5, 10, 10, 2]);
        assert_eq!(waves(&DEFAULT_RAMP, 2), [1, 1]);
        assert_eq!(waves(&[3], 7), [3, 3, 1]);
        assert_eq!(waves(&DEFAULT_RAMP, 0), Vec::<usize>::new());
        assert_eq!(waves(&[], 2), [1, 1]);
    }
}
