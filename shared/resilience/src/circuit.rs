//! The state machine of a circuit breaker, without locks and with the time passed in. Each entered state has a generation number;
//! an outcome with an older number changes nothing.

use std::{collections::VecDeque, fmt, time::Duration};

use tokio::time::Instant;

/// How many failures are kept for operators, and how many characters of each.
const FAILURES_KEPT: usize = 10;
const REASON_CHARS: usize = 300;

/// The retry delay while all probes are in flight, whose duration is not known.
const PROBING_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Replaces a duration that is too long to be added.
const FAR_AWAY: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All calls are admitted, and the failure rate of the last ones is checked.
    Closed,
    /// No call is admitted.
    Open { until: Instant },
    /// A few probes are admitted: enough successes close it, a round without any opens it again.
    HalfOpen,
}

impl State {
    /// `closed`, `open` or `half-open`.
    pub fn label(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open { .. } => "open",
            State::HalfOpen => "half-open",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A snapshot of a breaker, for operators and metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub step: &'static str,
    /// False: every call is admitted and nothing counted.
    pub enabled: bool,
    pub policy: saga::Breaker,
    pub state: State,
    /// How long ago it entered this state.
    pub since: Duration,
    /// Why it entered this state.
    pub why: String,
    /// While open: the time until it admits probes.
    pub retry_in: Option<Duration>,
    /// The last calls, oldest first, true for a failure. While not closed: the calls that opened it.
    pub window: Vec<bool>,
    /// The number of calls in the window.
    pub calls: usize,
    /// The share of failures in the window, 0 to 1; 0 when it is empty.
    pub failure_rate: f64,
    pub counts: Counts,
    /// The newest first.
    pub last_failures: Vec<PastFailure>,
}

/// Totals since the process started; they only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub succeeded: u64,
    pub failed: u64,
    /// Refusals, and calls that were cancelled.
    pub ignored: u64,
    /// Calls that were not admitted.
    pub rejected: u64,
    /// Outcomes of calls admitted in an earlier state, and therefore dropped.
    pub late: u64,
    /// How often it opened.
    pub opened: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastFailure {
    pub ago: Duration,
    pub reason: String,
}

pub(crate) enum Outcome {
    Success,
    Failure(String),
    Ignored,
}

pub(crate) struct Circuit {
    policy: saga::Breaker,
    state: State,
    since: Instant,
    why: String,
    generation: u64,
    window: VecDeque<bool>,
    in_flight: u32,
    succeeded: u32,
    /// Of the current round of probes: whether one succeeded, and why one failed.
    probe_succeeded: bool,
    probe_failure: Option<String>,
    counts: Counts,
    last_failures: VecDeque<(Instant, String)>,
}

impl Circuit {
    /// A policy that could never open or never close is replaced by the nearest one that can.
    pub(crate) fn new(mut policy: saga::Breaker, now: Instant) -> Self {
        policy.window = policy.window.max(1);
        policy.min_calls = policy.min_calls.clamp(1, policy.window);
        policy.half_open_probes = policy.half_open_probes.max(1);
        Circuit {
            policy,
            state: State::Closed,
            since: now,
            why: "new".to_owned(),
            generation: 0,
            window: VecDeque::new(),
            in_flight: 0,
            succeeded: 0,
            probe_succeeded: false,
            probe_failure: None,
            counts: Counts::default(),
            last_failures: VecDeque::new(),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// How many calls the present state still admits.
    pub(crate) fn capacity(&self) -> u32 {
        match self.state {
            State::Closed => u32::MAX,
            State::Open { .. } => 0,
            State::HalfOpen => self.policy.half_open_probes.saturating_sub(self.in_flight + self.succeeded),
        }
    }

    /// How many calls are admitted at this time.
    pub(crate) fn capacity_at(&mut self, now: Instant) -> u32 {
        self.probe_when_due(now);
        self.capacity()
    }

    /// The generation to record the outcome with, or how long to wait.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<u64, Duration> {
        if self.capacity_at(now) == 0 {
            self.counts.rejected += 1;
            return Err(match self.state {
                State::Open { until } => until - now,
                State::Closed | State::HalfOpen => PROBING_RETRY_DELAY.min(self.policy.open_for),
            });
        }
        if self.state == State::HalfOpen {
            self.in_flight += 1;
        }
        Ok(self.generation)
    }

    pub(crate) fn record(&mut self, generation: u64, outcome: Outcome, now: Instant) {
        if generation != self.generation {
            self.counts.late += 1;
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        match outcome {
            Outcome::Ignored => self.counts.ignored += 1,
            Outcome::Success => {
                self.counts.succeeded += 1;
                self.record_call(None, now);
            }
            Outcome::Failure(reason) => {
                self.counts.failed += 1;
                let reason: String = reason.chars().take(REASON_CHARS).collect();
                self.last_failures.truncate(FAILURES_KEPT - 1);
                self.last_failures.push_front((now, reason.clone()));
                self.record_call(Some(reason), now);
            }
        }
        self.judge_probes(now);
    }

    /// After the last probe in flight: a round in which none succeeded and one failed opens it again. One failing event among
    /// successful ones does not.
    fn judge_probes(&mut self, now: Instant) {
        if self.state != State::HalfOpen || self.in_flight > 0 {
            return;
        }
        let succeeded = std::mem::take(&mut self.probe_succeeded);
        if let Some(reason) = self.probe_failure.take().filter(|_| !succeeded) {
            self.open(now, format!("a probe failed: {reason}"));
        }
    }

    pub(crate) fn reset(&mut self, now: Instant) {
        self.close(now, "reset".to_owned());
    }

    pub(crate) fn snapshot(&mut self, step: &'static str, enabled: bool, now: Instant) -> Snapshot {
        self.probe_when_due(now);
        let retry_in = match self.state {
            State::Open { until } => Some(until - now),
            State::Closed | State::HalfOpen => None,
        };
        let past = |(at, reason): &(Instant, String)| PastFailure { ago: now - *at, reason: reason.clone() };
        Snapshot {
            step,
            enabled,
            policy: self.policy,
            state: self.state,
            since: now - self.since,
            why: self.why.clone(),
            retry_in,
            window: self.window.iter().copied().collect(),
            calls: self.window.len(),
            failure_rate: self.failure_rate(),
            counts: self.counts,
            last_failures: self.last_failures.iter().map(past).collect(),
        }
    }

    /// Records a call that succeeded or failed in the present state.
    fn record_call(&mut self, failure: Option<String>, now: Instant) {
        match (self.state, failure) {
            (State::HalfOpen, Some(reason)) => self.probe_failure = Some(reason),
            (State::HalfOpen, None) => {
                self.probe_succeeded = true;
                self.succeeded += 1;
                if self.succeeded >= self.policy.half_open_probes {
                    self.close(now, format!("{} of {0} probes succeeded", self.succeeded));
                }
            }
            (State::Closed, failure) => {
                self.window.push_back(failure.is_some());
                if self.window.len() > self.policy.window as usize {
                    self.window.pop_front();
                }
                self.open_when_failing(now);
            }
            // No call is admitted while open, so none of this generation can end.
            (State::Open { .. }, _) => {}
        }
    }

    fn open_when_failing(&mut self, now: Instant) {
        let calls = self.window.len();
        let rate = self.failure_rate();
        // A failure rate of zero means "at the first failure", not "without any failure".
        if calls < self.policy.min_calls as usize || rate == 0.0 || rate < self.policy.failure_rate {
            return;
        }
        let last = self.last_failures.front().map_or("", |(_, reason)| reason);
        let why = format!("{} of the last {calls} calls failed, the last one: {last}", self.failures());
        self.open(now, why);
    }

    fn open(&mut self, now: Instant, why: String) {
        let until = now.checked_add(self.policy.open_for).unwrap_or_else(|| now + FAR_AWAY);
        self.counts.opened += 1;
        self.enter(State::Open { until }, now, why);
    }

    fn close(&mut self, now: Instant, why: String) {
        self.window.clear();
        self.enter(State::Closed, now, why);
    }

    fn probe_when_due(&mut self, now: Instant) {
        if let State::Open { until } = self.state
            && until <= now
        {
            self.enter(State::HalfOpen, until, format!("open for {:?}", self.policy.open_for));
        }
    }

    fn enter(&mut self, state: State, at: Instant, why: String) {
        self.state = state;
        self.since = at;
        self.why = why;
        self.generation += 1;
        self.in_flight = 0;
        self.succeeded = 0;
        self.probe_succeeded = false;
        self.probe_failure = None;
    }

    fn failures(&self) -> usize {
        self.window.iter().filter(|failed| **failed).count()
    }

    fn failure_rate(&self) -> f64 {
        if self.window.is_empty() { 0.0 } else { self.failures() as f64 / self.window.len() as f64 }
    }
}
