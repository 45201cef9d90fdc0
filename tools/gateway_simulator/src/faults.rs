//! Faults a caller can arm over `/v1/faults`: latency, errors, dropped connections and declines at given rates.
//! Pure: the clock comes in as an argument, and whether the n-th request fails depends only on the seed and n, so a run
//! can be repeated. Every fault expires.

use std::time::{Duration, Instant};

/// What is armed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultSettings {
    /// Added to every answer.
    pub latency: Duration,
    /// Share of requests answered 503 without any effect, 0 to 1.
    pub error_rate: f64,
    /// Share of requests whose connection is dropped: half of them before the effect, half after it.
    pub drop_rate: f64,
    /// Share of fresh charges that are refused.
    pub decline_rate: f64,
    /// The same seed gives the same sequence of strikes.
    pub seed: u64,
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
    /// Replaces what was armed before and starts its sequence anew.
    pub fn arm(&mut self, settings: FaultSettings, expires_in: Duration, now: Instant) {
        self.armed = Some(Armed { settings, expires_at: now + expires_in, strikes: 0 });
    }

    pub fn disarm(&mut self) {
        self.armed = None;
    }

    /// What is armed, and for how long still.
    pub fn armed(&self, now: Instant) -> Option<(FaultSettings, Duration)> {
        let armed = self.armed.as_ref().filter(|armed| armed.expires_at > now)?;
        Some((armed.settings, armed.expires_at - now))
    }

    /// Decides the next request's fate.
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
            latency: self.latency,
            error: draw(1) < self.error_rate,
            drop: (draw(2) < self.drop_rate).then_some(point),
            decline: draw(3) < self.decline_rate,
        }
    }
}

/// A number in [0, 1) that depends on nothing but its arguments: SplitMix64 (Steele, Lea, Flood 2014), top 53 bits.
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
        FaultSettings { latency: Duration::from_millis(5), error_rate: 0.3, drop_rate: 0.2, decline_rate: 0.1, seed }
    }

    fn strikes(seed: u64, count: usize) -> Vec<Strike> {
        let now = Instant::now();
        let mut faults = Faults::default();
        faults.arm(settings(seed), Duration::from_secs(60), now);
        (0..count).map(|_| faults.strike(now)).collect()
    }

    #[test]
    fn rates_are_kept_over_many_requests() {
        let strikes = strikes(1, 20_000);
        let share = |hit: fn(&Strike) -> bool| strikes.iter().filter(|strike| hit(strike)).count() as f64 / 20_000.0;
        assert!((share(|strike| strike.error) - 0.3).abs() < 0.02);
        assert!((share(|strike| strike.drop.is_some()) - 0.2).abs() < 0.02);
        assert!((share(|strike| strike.drop == Some(DropPoint::AfterEffect)) - 0.1).abs() < 0.02);
        assert!((share(|strike| strike.decline) - 0.1).abs() < 0.02);
    }

    #[test]
    fn faults_expire() {
        let now = Instant::now();
        let mut faults = Faults::default();
        faults.arm(settings(1), Duration::from_secs(60), now);
        assert_eq!(faults.armed(now + Duration::from_secs(59)).map(|(_, left)| left), Some(Duration::from_secs(1)));
        assert_eq!(faults.armed(now + Duration::from_secs(60)), None);
        assert_eq!(faults.strike(now + Duration::from_secs(60)), Strike::default());
    }
}
