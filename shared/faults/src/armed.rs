//! One armed fault: whether it is still active, and which passes it hits. Only the spec and the number of a pass decide that, so
//! replicas that count the passes of a fault together hit the same ones as a single process would.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::{sync::watch, time::Instant};

use crate::{FaultPoint, FaultSpec, Kind, Subject};

/// The range of generated seeds: integers that every JSON parser represents exactly.
const SEEDS: u64 = 1 << 53;
/// The range of the random part of an id: about as many faults may be drafted within one millisecond before ids collide.
const IDS_PER_MILLISECOND: u64 = 1 << 10;

/// An armed fault as the API shows it, with the defaults of its spec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Armed {
    pub id: u64,
    #[serde(flatten)]
    pub spec: FaultSpec,
    /// Who armed it.
    pub armed_by: String,
    #[serde(with = "time::serde::rfc3339")]
    pub armed_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// Whether all replicas of the service have it and count its passes together; false for a fault of a process's own plan.
    pub shared: bool,
    /// The number of passes within its scope.
    pub passes: u64,
    /// The number of passes that were hit.
    pub hits: u64,
}

impl Armed {
    /// `spec` must be valid.
    pub(crate) fn new(id: u64, mut spec: FaultSpec, armed_by: &str) -> Self {
        let lasts = *spec.expires_in_seconds.insert(spec.lasts());
        if spec.kind == Kind::Duplicate {
            spec.copies.get_or_insert(1);
        }
        if spec.probability.is_some() {
            spec.seed.get_or_insert_with(|| random_below(SEEDS));
        }
        let (armed_by, armed_at) = (armed_by.to_owned(), wall_clock());
        let expires_at = armed_at + Duration::from_secs(lasts.into());
        Armed { id, spec, armed_by, armed_at, expires_at, shared: false, passes: 0, hits: 0 }
    }

    /// The longest time from arming to expiry.
    pub fn lasts(&self) -> Duration {
        Duration::from_secs(self.spec.lasts().into())
    }

    /// Whether it has hit its last pass.
    pub fn is_done(&self) -> bool {
        self.spec.last_pass().is_some_and(|last| self.passes >= last)
    }
}

/// An id that is unique among replicas. It grows with time, because of several faults the first by id acts, and every JSON
/// parser represents it exactly.
pub(crate) fn new_shared_id() -> u64 {
    let milliseconds = u64::try_from(wall_clock().unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    milliseconds * IDS_PER_MILLISECOND + random_below(IDS_PER_MILLISECOND)
}

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) armed: Armed,
    pub(crate) ends: Instant,
    /// Each pass that is or may be hit holds a receiver, which reports the end of the fault.
    pub(crate) life: watch::Sender<()>,
}

impl Fault {
    pub(crate) fn new(armed: Armed, lasts: Duration) -> Self {
        Fault { armed, ends: Instant::now() + lasts, life: watch::Sender::new(()) }
    }

    /// Whether it is to be kept: not expired, and able to hit another pass or still delaying one.
    pub(crate) fn is_active(&self, now: Instant) -> bool {
        now < self.ends && (!self.armed.is_done() || self.life.receiver_count() > 0)
    }

    /// Whether a pass of this point with this subject may be hit.
    pub(crate) fn concerns(&self, point: FaultPoint, subject: &Subject) -> bool {
        self.armed.spec.point == point && !self.armed.is_done() && self.armed.spec.scope.matches(subject)
    }

    /// Counts a pass that it concerns: the next one, or the one with this number. Returns whether the pass is hit.
    pub(crate) fn count_pass(&mut self, number: Option<u64>) -> bool {
        let Armed { spec, passes, hits, .. } = &mut self.armed;
        let number = number.unwrap_or(*passes + 1);
        *passes = number.max(*passes);
        let hit = spec.hits(number);
        *hits += u64::from(hit);
        hit
    }
}

impl FaultSpec {
    /// The number of the last pass that is hit; `None` without a limit.
    pub fn last_pass(&self) -> Option<u64> {
        self.first.map(|first| u64::from(first) + u64::from(self.skip.unwrap_or_default()))
    }

    /// Whether the pass with this number, from 1, is hit.
    fn hits(&self, number: u64) -> bool {
        let Some(pass) = number.checked_sub(self.skip.unwrap_or_default().into()).filter(|pass| *pass > 0) else {
            return false;
        };
        match (self.probability, self.every, self.first) {
            (Some(probability), ..) => generator(self.seed.unwrap_or_default(), number).random_bool(probability),
            (None, Some(every), _) => pass.is_multiple_of(every.into()),
            (None, None, Some(first)) => pass <= first.into(),
            (None, None, None) => true,
        }
    }
}

/// The generator for a pass: the same seed and number give the same result in every replica.
fn generator(seed: u64, number: u64) -> StdRng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
    StdRng::from_seed(key)
}

#[expect(clippy::disallowed_methods, reason = "for display; expiry uses the clock of tokio")]
fn wall_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a caller can set the seed; a random one is shown, so that it can be repeated"
)]
fn random_below(below: u64) -> u64 {
    rand::rng().random_range(0..below)
}
