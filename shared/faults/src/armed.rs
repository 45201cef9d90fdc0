//! One armed fault: whether it still lives, and which passes it hits. It counts the passes, so the order in which they
//! come is all that decides.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;
use time::OffsetDateTime;
use tokio::{sync::watch, time::Instant};

use crate::{FaultPoint, FaultSpec, Kind, Subject};

/// How many different seeds are drawn: as many as every reader of JSON can give back unchanged.
const SEEDS: u64 = 1 << 53;

/// An armed fault, as it is shown. The spec has its defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// How many passes within its scope it has seen.
    pub passes: u64,
    /// How many of them it has hit.
    pub hits: u64,
}

/// An armed fault and what it needs to decide.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) armed: Armed,
    pub(crate) ends: Instant,
    draws: StdRng,
    /// Whoever is being hit holds a receiver, and learns from it that the fault is no more.
    life: watch::Sender<()>,
}

impl Fault {
    /// `spec` is valid.
    pub(crate) fn new(id: u64, mut spec: FaultSpec, armed_by: &str) -> Self {
        let lasts = *spec.expires_in_seconds.insert(spec.lasts());
        if spec.kind == Kind::Duplicate {
            spec.copies.get_or_insert(1);
        }
        if spec.probability.is_some() {
            spec.seed.get_or_insert_with(drawn_seed);
        }
        let lasts = Duration::from_secs(lasts.into());
        let draws = StdRng::seed_from_u64(spec.seed.unwrap_or_default());
        let armed_at = wall_clock();
        let armed_by = armed_by.to_owned();
        let armed = Armed { id, spec, armed_by, armed_at, expires_at: armed_at + lasts, passes: 0, hits: 0 };
        Fault { armed, ends: Instant::now() + lasts, draws, life: watch::Sender::new(()) }
    }

    /// Whether it is to be kept: not expired, and able to hit another pass or still holding one.
    pub(crate) fn lives(&self, now: Instant) -> bool {
        now < self.ends && (!self.is_done() || self.life.receiver_count() > 0)
    }

    /// Whether a pass of this point with this subject may be hit.
    pub(crate) fn concerns(&self, point: FaultPoint, subject: &Subject) -> bool {
        self.armed.spec.point == point && !self.is_done() && self.armed.spec.scope.matches(subject)
    }

    /// Whether it has hit all it should.
    pub(crate) fn is_done(&self) -> bool {
        self.armed.spec.first.is_some_and(|first| self.armed.hits >= u64::from(first))
    }

    /// Counts a pass that it concerns. If that one is hit: what ends when the fault is disarmed.
    pub(crate) fn take(&mut self) -> Option<watch::Receiver<()>> {
        let Armed { spec, passes, hits, .. } = &mut self.armed;
        *passes += 1;
        let pass = passes.checked_sub(spec.skip.unwrap_or_default().into()).filter(|pass| *pass > 0)?;
        let hit = match (spec.probability, spec.every) {
            (Some(probability), _) => self.draws.random_bool(probability),
            (None, Some(every)) => pass % u64::from(every) == 0,
            (None, None) => true,
        };
        hit.then(|| {
            *hits += 1;
            self.life.subscribe()
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "for people to read; what expires is decided by the clock of tokio")]
fn wall_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

#[expect(clippy::disallowed_methods, reason = "who wants to choose gives a seed; this one is shown, to be repeated")]
fn drawn_seed() -> u64 {
    rand::rng().random_range(0..SEEDS)
}
