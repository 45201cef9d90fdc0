//! The resilience settings of each step: the defaults from the saga's step table, and a deployment's overrides of single values.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use saga::{Breaker, Retry, Step};

/// The settings of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    pub retry: Retry,
    pub breaker: Breaker,
    /// How long one run of the step may take.
    pub time_limit: Duration,
}

impl Policy {
    /// The step's own settings.
    pub fn of(step: &Step) -> Self {
        Policy { retry: step.retry, breaker: step.breaker, time_limit: step.time_limit }
    }
}

/// A deployment's overrides: `process_payment.open_for=2s,reserve_stock.attempts=7`.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    by_step: BTreeMap<String, Vec<Setting>>,
}

/// A field of a policy, and the value that overrides it.
#[derive(Debug, Clone, Copy)]
enum Setting {
    Count(fn(&mut Policy) -> &mut u32, u32),
    Number(fn(&mut Policy) -> &mut f64, f64),
    Time(fn(&mut Policy) -> &mut Duration, Duration),
}

/// Why a text is not an override.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOverride {
    #[error("{0:?} does not read `step.setting=value`")]
    Form(String),
    #[error(
        "there is no setting {0:?}: there are attempts, initial, multiplier, max, time_limit, window, min_calls, \
         failure_rate, open_for and half_open_probes"
    )]
    Setting(String),
    #[error("{value:?} cannot be the value of {setting}")]
    Value { setting: String, value: String },
}

impl Overrides {
    /// The settings of this step in this deployment.
    pub fn policy(&self, step: &Step) -> Policy {
        let mut policy = Policy::of(step);
        for setting in self.by_step.get(step.name).into_iter().flatten() {
            setting.apply(&mut policy);
        }
        policy
    }

    /// The steps with overrides.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.by_step.keys().map(String::as_str)
    }
}

impl FromStr for Overrides {
    type Err = InvalidOverride;

    fn from_str(text: &str) -> Result<Self, InvalidOverride> {
        let mut overrides = Overrides::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let form = || InvalidOverride::Form(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            let (step, setting) = name.split_once('.').ok_or_else(form)?;
            let setting = Setting::read(setting.trim(), value.trim())?;
            overrides.by_step.entry(step.trim().to_owned()).or_default().push(setting);
        }
        Ok(overrides)
    }
}

impl Setting {
    fn read(name: &str, value: &str) -> Result<Self, InvalidOverride> {
        let wrong = || InvalidOverride::Value { setting: name.to_owned(), value: value.to_owned() };
        let count = || value.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(wrong);
        let time = || humantime::parse_duration(value).ok().filter(|t| !t.is_zero()).ok_or_else(wrong);
        let number =
            |least: f64, most: f64| value.parse::<f64>().ok().filter(|n| (least..=most).contains(n)).ok_or_else(wrong);
        Ok(match name {
            "attempts" => Setting::Count(|policy| &mut policy.retry.attempts, count()?),
            "initial" => Setting::Time(|policy| &mut policy.retry.initial, time()?),
            "multiplier" => Setting::Number(|policy| &mut policy.retry.multiplier, number(1.0, 100.0)?),
            "max" => Setting::Time(|policy| &mut policy.retry.max, time()?),
            "time_limit" => Setting::Time(|policy| &mut policy.time_limit, time()?),
            "window" => Setting::Count(|policy| &mut policy.breaker.window, count()?),
            "min_calls" => Setting::Count(|policy| &mut policy.breaker.min_calls, count()?),
            "failure_rate" => Setting::Number(|policy| &mut policy.breaker.failure_rate, number(0.0, 1.0)?),
            "open_for" => Setting::Time(|policy| &mut policy.breaker.open_for, time()?),
            "half_open_probes" => Setting::Count(|policy| &mut policy.breaker.half_open_probes, count()?),
            unknown => return Err(InvalidOverride::Setting(unknown.to_owned())),
        })
    }

    fn apply(self, policy: &mut Policy) {
        match self {
            Setting::Count(field, value) => *field(policy) = value,
            Setting::Number(field, value) => *field(policy) = value,
            Setting::Time(field, value) => *field(policy) = value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker_tests::STEP;

    fn policy(text: &str) -> Policy {
        text.parse::<Overrides>().expect("it reads").policy(&STEP)
    }

    #[test]
    fn a_step_without_overrides_has_what_its_row_says() {
        assert_eq!(policy(""), Policy::of(&STEP));
        assert_eq!(policy("another_step.attempts=9"), Policy::of(&STEP));
    }

    #[test]
    fn every_setting_changes_its_own_value_and_no_other() {
        let row = Policy::of(&STEP);
        let (retry, breaker) = (row.retry, row.breaker);
        let seconds = Duration::from_secs;
        for (setting, expected) in [
            ("attempts=9", Policy { retry: Retry { attempts: 9, ..retry }, ..row }),
            ("initial=7s", Policy { retry: Retry { initial: seconds(7), ..retry }, ..row }),
            ("multiplier=3.5", Policy { retry: Retry { multiplier: 3.5, ..retry }, ..row }),
            ("max=77s", Policy { retry: Retry { max: seconds(77), ..retry }, ..row }),
            ("time_limit=8s", Policy { time_limit: seconds(8), ..row }),
            ("window=44", Policy { breaker: Breaker { window: 44, ..breaker }, ..row }),
            ("min_calls=2", Policy { breaker: Breaker { min_calls: 2, ..breaker }, ..row }),
            ("failure_rate=0.9", Policy { breaker: Breaker { failure_rate: 0.9, ..breaker }, ..row }),
            ("open_for=90s", Policy { breaker: Breaker { open_for: seconds(90), ..breaker }, ..row }),
            ("half_open_probes=6", Policy { breaker: Breaker { half_open_probes: 6, ..breaker }, ..row }),
        ] {
            let changed = policy(&format!("{}.{setting}", STEP.name));
            assert_eq!(changed, expected, "{setting}");
            assert_ne!(changed, row, "{setting} is what the row says anyway");
        }
    }

    #[test]
    fn the_last_of_two_says_it_and_spaces_do_no_harm() {
        let name = STEP.name;
        assert_eq!(policy(&format!("{name}.attempts=4 , {name}.attempts = 8")).retry.attempts, 8);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in ["attempts", "a.attempts", "a=1", "a.speed=1", "a.attempts=0", "a.attempts=-1", "a.open_for=5"] {
            assert!(text.parse::<Overrides>().is_err(), "{text}");
        }
        for text in ["a.failure_rate=1.1", "a.failure_rate=NaN", "a.multiplier=0.5", "a.open_for=0s"] {
            assert!(text.parse::<Overrides>().is_err(), "{text}");
        }
    }
}
