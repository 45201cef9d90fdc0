//! Faults armed over `/v1/faults`: latency, errors, dropped connections and declines at given rates. Pure: the clock is an
//! argument, and whether the n-th request fails depends only on the seed and n, so a run can be repeated. Every fault expires.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What to arm, or what is armed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FaultsBody)]
pub struct FaultSettings {
    /// Added to every answer.
    #[serde(default)]
    #[schema(maximum = 30_000)]
    pub latency_ms: u64,
    /// Share of requests answered 503 without any effect.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    pub error_rate: f64,
    /// Share of requests whose connection is dropped without an answer: half of them before the effect, half after it.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    pub drop_rate: f64,
    /// Share of fresh charges of good cards that are declined with `card_declined`; the others keep their own reason.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    pub decline_rate: f64,
    /// The same seed hits the same requests, in the order of their arrival.
    #[serde(default)]
    pub seed: u64,
    /// Seconds until the faults expire: 1 to 3600 are accepted; the remaining time is rounded up.
    #[serde(default = "one_minute")]
    #[schema(maximum = 3600, default = 60)]
    pub expires_in_seconds: u64,
    /// They are not shown: for drills.
    #[serde(default, skip_serializing)]
    #[schema(write_only)]
    pub hidden: bool,
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Strike {
    pub latency: Duration,
    pub error: bool,
    pub drop: Option<DropPoint>,
    pub decline: bool,
}

/// When the connection is dropped; the caller cannot tell the two apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropPoint {
    BeforeEffect,
    AfterEffect,
}

/// At most one set of faults, until it expires.
#[derive(Debug, Default)]
pub struct Faults {
    armed: Option<Armed>,
}

#[derive(Debug)]
struct Armed {
    settings: FaultSettings,
    expires_at: Instant,
    strikes: u64,
}

impl Faults {
    /// Replaces earlier faults and restarts the sequence.
    pub fn arm(&mut self, settings: FaultSettings, now: Instant) {
        let expires_at = now + Duration::from_secs(settings.expires_in_seconds);
        self.armed = Some(Armed { settings, expires_at, strikes: 0 });
    }

    pub fn disarm(&mut self) {
        self.armed = None;
    }

    /// The armed faults with the remaining time, unless they are hidden.
    pub fn armed(&self, now: Instant) -> Option<FaultSettings> {
        let armed = self.armed.as_ref().filter(|armed| armed.expires_at > now && !armed.settings.hidden)?;
        let left = (armed.expires_at - now).as_millis().div_ceil(1_000) as u64;
        Some(FaultSettings { expires_in_seconds: left, ..armed.settings })
    }

    /// The faults that hit the next request.
    pub fn strike(&mut self, now: Instant) -> Strike {
        let Some(armed) = self.armed.as_mut().filter(|armed| armed.expires_at > now) else {
            self.armed = None;
            return Strike::default();
        };
        let strike = armed.settings.strike(armed.strikes);
        armed.strikes += 1;
        strike
    }
}

impl FaultSettings {
    fn strike(&self, n: u64) -> Strike {
        let draw = |kind| uniform(self.seed, n, kind);
        let point = if draw(0) < 0.5 { DropPoint::BeforeEffect } else { DropPoint::AfterEffect };
        Strike {
            latency: Duration::from_millis(self.latency_ms),
            error: draw(1) < self.error_rate,
            drop: (draw(2) < self.drop_rate).then_some(point),
            decline: draw(3) < self.decline_rate,
        }
    }
}

fn one_minute() -> u64 {
    60
}

/// A number in [0, 1) that depends only on its arguments: SplitMix64 (Steele, Lea, Flood 2014), top 53 bits.
fn uniform(seed: u64, n: u64, kind: u64) -> f64 {
    let mixed = split_mix(split_mix(seed).wrapping_add(n.wrapping_mul(4).wrapping_add(kind)));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

fn split_mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seed: u64) -> FaultSettings {
        let (error_rate, drop_rate, decline_rate) = (0.3, 0.2, 0.1);
        FaultSettings {
            latency_ms: 5,
            error_rate,
            drop_rate,
            decline_rate,
            seed,
            expires_in_seconds: 60,
            hidden: false,
        }
    }

    fn strikes(seed: u64, count: usize) -> Vec<Strike> {
        let now = Instant::now();
        let mut faults = Faults::default();
        faults.arm(settings(seed), now);
        (0..count).map(|_| faults.strike(now)).collect()
    }

    #[test]
    fn rates_hold_over_many_requests() {
        let strikes = strikes(1, 20_000);
        let share = |hit: fn(&Strike) -> bool| strikes.iter().filter(|strike| hit(strike)).count() as f64 / 20_000.0;
        assert!((share(|strike| strike.error) - 0.3).abs() < 0.02);
        assert!((share(|strike| strike.drop.is_some()) - 0.2).abs() < 0.02);
        assert!((share(|strike| strike.drop == Some(DropPoint::AfterEffect)) - 0.1).abs() < 0.02);
        assert!((share(|strike| strike.decline) - 0.1).abs() < 0.02);
    }

    #[test]
    fn the_same_seed_hits_the_same_requests() {
        assert_eq!(strikes(42, 100), strikes(42, 100));
        assert_ne!(strikes(42, 100), strikes(43, 100));
    }

    #[test]
    fn faults_expire() {
        let now = Instant::now();
        let mut faults = Faults::default();
        faults.arm(settings(1), now);
        let left =
            |milliseconds| faults.armed(now + Duration::from_millis(milliseconds)).map(|left| left.expires_in_seconds);
        assert_eq!((left(58_001), left(59_000), left(60_000)), (Some(2), Some(1), None));
        assert_eq!(faults.strike(now + Duration::from_secs(60)), Strike::default());
    }

    #[test]
    fn hidden_faults_strike_unseen() {
        let (now, mut faults) = (Instant::now(), Faults::default());
        faults.arm(FaultSettings { error_rate: 1.0, hidden: true, ..settings(1) }, now);
        assert!(faults.armed(now).is_none() && faults.strike(now).error);
    }
}
