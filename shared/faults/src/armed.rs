//! One armed fault: whether it still lives, and which passes it hits. A pass has a number, and with the spec it is all
//! that decides: replicas that count the passes of a fault together hit the same ones as a single process would.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::{sync::watch, time::Instant};

use crate::{FaultPoint, FaultSpec, Kind, Subject};

/// How many different seeds are drawn: as many as every reader of JSON can give back unchanged.
const SEEDS: u64 = 1 << 53;
/// How many faults may be drafted within one millisecond, roughly, before two of them have the same id.
const IDS_PER_MILLISECOND: u64 = 1 << 10;

/// An armed fault, as it is shown. The spec has its defaults filled in.
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
    /// Whether all replicas of the service hold it and count its passes together; false for a fault of a process's own plan.
    pub shared: bool,
    /// How many passes within its scope there were.
    pub passes: u64,
    /// How many of them were hit.
    pub hits: u64,
}

impl Armed {
    /// `spec` is valid.
    pub(crate) fn new(id: u64, mut spec: FaultSpec, armed_by: &str) -> Self {
        let lasts = *spec.expires_in_seconds.insert(spec.lasts());
        if spec.kind == Kind::Duplicate {
            spec.copies.get_or_insert(1);
        }
        if spec.probability.is_some() {
            spec.seed.get_or_insert_with(|| drawn(SEEDS));
        }
        let (armed_by, armed_at) = (armed_by.to_owned(), wall_clock());
        let expires_at = armed_at + Duration::from_secs(lasts.into());
        Armed { id, spec, armed_by, armed_at, expires_at, shared: false, passes: 0, hits: 0 }
    }

    /// How long it lasts from its arming, at most.
    pub fn lasts(&self) -> Duration {
        Duration::from_secs(self.spec.lasts().into())
    }

    /// Whether it has hit all it should.
    pub fn is_done(&self) -> bool {
        self.spec.last_pass().is_some_and(|last| self.passes >= last)
    }
}

/// An id that no other replica gives. It grows with time, because of several faults the first by id acts, and every reader
/// of JSON can give it back unchanged.
pub(crate) fn new_shared_id() -> u64 {
    let milliseconds = u64::try_from(wall_clock().unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    milliseconds * IDS_PER_MILLISECOND + drawn(IDS_PER_MILLISECOND)
}

/// An armed fault and what it needs to decide.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) armed: Armed,
    pub(crate) ends: Instant,
    /// Whoever is being hit, or about to be, holds a receiver, and learns from it that the fault is no more.
    pub(crate) life: watch::Sender<()>,
}

impl Fault {
    pub(crate) fn new(armed: Armed, lasts: Duration) -> Self {
        Fault { armed, ends: Instant::now() + lasts, life: watch::Sender::new(()) }
    }

    /// Whether it is to be kept: not expired, and able to hit another pass or still holding one.
    pub(crate) fn lives(&self, now: Instant) -> bool {
        now < self.ends && (!self.armed.is_done() || self.life.receiver_count() > 0)
    }

    /// Whether a pass of this point with this subject may be hit.
    pub(crate) fn concerns(&self, point: FaultPoint, subject: &Subject) -> bool {
        self.armed.spec.point == point && !self.armed.is_done() && self.armed.spec.scope.matches(subject)
    }

    /// Takes note of a pass that it concerns: the next one, or the one with this number. Whether it is hit.
    pub(crate) fn takes(&mut self, number: Option<u64>) -> bool {
        let Armed { spec, passes, hits, .. } = &mut self.armed;
        let number = number.unwrap_or(*passes + 1);
        *passes = number.max(*passes);
        let hit = spec.hits(number);
        *hits += u64::from(hit);
        hit
    }
}

impl FaultSpec {
    /// The number of the last pass that is hit; none when there is no last one.
    pub fn last_pass(&self) -> Option<u64> {
        self.first.map(|first| u64::from(first) + u64::from(self.skip.unwrap_or_default()))
    }

    /// Whether the pass with this number, from 1, is hit.
    fn hits(&self, number: u64) -> bool {
        let Some(pass) = number.checked_sub(self.skip.unwrap_or_default().into()).filter(|pass| *pass > 0) else {
            return false;
        };
        match (self.probability, self.every, self.first) {
            (Some(probability), ..) => draw(self.seed.unwrap_or_default(), number).random_bool(probability),
            (None, Some(every), _) => pass.is_multiple_of(every.into()),
            (None, None, Some(first)) => pass <= first.into(),
            (None, None, None) => true,
        }
    }
}

/// The same seed and number give the same draw, whichever replica draws.
fn draw(seed: u64, number: u64) -> StdRng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
    StdRng::from_seed(key)
}

#[expect(clippy::disallowed_methods, reason = "for people to read; what expires is decided by the clock of tokio")]
fn wall_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

#[expect(
    clippy::disallowed_methods,
    reason = "who wants to choose a seed gives one; a drawn one is shown, to be repeated"
)]
fn drawn(below: u64) -> u64 {
    rand::rng().random_range(0..below)
}
