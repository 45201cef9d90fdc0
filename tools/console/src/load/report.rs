//! What came of a load: how many orders ended how, and how long they took.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;
use time::OffsetDateTime;

use super::{
    latency::Latency,
    life::{End, Life},
};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Every order was accepted and came to its end, and those that could be filled and paid are confirmed.
    pub(super) passed: bool,
    seed: u64,
    orders: usize,
    seconds: f64,
    /// Orders that ended, a second, while orders were placed; without those of the warm-up. By the suite's clock.
    ended_per_second: f64,
    /// How many ended in each second since the first one began.
    ended_in_second: Vec<u32>,
    /// Requests beyond the first that placements needed.
    repeated_requests: u32,
    outcomes: BTreeMap<String, usize>,
    /// Orders of which each is a defect: id and what is wrong.
    defects: Vec<String>,
    /// From the moment an order was due to the answer to its placement.
    answer: Latency,
    /// From the start of the saga to its end, by the suite's clock; without customers' cancellations.
    saga: Latency,
    /// The part of them that was confirmed.
    saga_confirmed: Latency,
    /// From the moment an order was due until its client saw the end of its saga; the same orders as `saga`.
    seen_by_client: Latency,
}

impl Report {
    pub(super) fn new(seed: u64, took: Duration, warm_up: Duration, lives: &[Life]) -> Self {
        let mut outcomes = BTreeMap::new();
        for life in lives {
            *outcomes.entry(outcome(&life.end)).or_default() += 1;
        }
        let measured = || lives.iter().filter(|life| life.measured);
        let undisturbed = || measured().filter(|life| !life.cancelled_by_customer);
        let ends = Ends::of(lives);
        let confirmed = || undisturbed().filter(|life| life.end == End::Confirmed);
        let defects: Vec<String> = lives.iter().filter(|life| !life.is_good()).map(defect).collect();
        Report {
            passed: defects.is_empty(),
            seed,
            orders: lives.len(),
            seconds: took.as_secs_f64(),
            ended_per_second: ends.per_second(warm_up),
            ended_in_second: ends.in_second(),
            repeated_requests: lives.iter().map(|life| life.requests.saturating_sub(1)).sum(),
            outcomes,
            defects,
            answer: Latency::of(measured().filter(|l| l.order_id.is_some()).map(|l| l.answered_after)),
            saga: Latency::of(undisturbed().filter_map(Life::saga_took)),
            saga_confirmed: Latency::of(confirmed().filter_map(Life::saga_took)),
            seen_by_client: Latency::of(undisturbed().filter_map(|life| life.seen_ended_after)),
        }
    }
}

fn outcome(end: &End) -> String {
    match end {
        End::Confirmed => "confirmed".to_owned(),
        End::Cancelled(step) => format!("cancelled ({step})"),
        End::Refused(_) => "REFUSED".to_owned(),
        End::Unanswered(_) => "UNANSWERED".to_owned(),
        End::Lost => "LOST".to_owned(),
        End::Unwatched => "UNWATCHED".to_owned(),
        End::Unfinished(_) => "UNFINISHED".to_owned(),
    }
}

fn defect(life: &Life) -> String {
    let order = life.order_id.map_or_else(|| "an order".to_owned(), |id| format!("order {id}"));
    match &life.end {
        End::Refused(why) => format!("{order} was refused: {why}"),
        End::Unanswered(why) => format!("{order} was never answered: {why}"),
        End::Unfinished(state) => format!("{order} has not ended: {state}"),
        End::Unwatched => format!("{order} was not looked for"),
        End::Cancelled(step) => format!("{order} could be filled and paid, and was cancelled at {step}"),
        _ => format!("{order} was acknowledged and is lost"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        for (outcome, count) in &self.outcomes {
            writeln!(f, "{count:>8}  {outcome}")?;
        }
        writeln!(f, "{:>8}  requests were repeated", self.repeated_requests)?;
        for defect in self.defects.iter().take(SHOWN) {
            writeln!(f, "          - {defect}")?;
        }
        let more = self.defects.len().saturating_sub(SHOWN);
        if more > 0 {
            writeln!(f, "          - and {more} more")?;
        }
        writeln!(f, "\n{:28}{:>8}{:>10}{:>10}{:>10}{:>10}", "milliseconds", "orders", "p50", "p95", "p99", "max")?;
        for (name, latency) in [
            ("due to answered", &self.answer),
            ("saga, start to end", &self.saga),
            ("  the confirmed ones", &self.saga_confirmed),
            ("due to end seen by client", &self.seen_by_client),
        ] {
            let Latency { count, p50_ms, p95_ms, p99_ms, max_ms, .. } = latency;
            writeln!(f, "{name:28}{count:>8}{p50_ms:>10.1}{p95_ms:>10.1}{p99_ms:>10.1}{max_ms:>10.1}")?;
        }
        let verdict =
            if self.passed { "every order came to its end" } else { "NOT every order came to the end that it should" };
        writeln!(f, "\n{:.1} orders ended a second while orders were placed", self.ended_per_second)?;
        writeln!(f, "{} orders in {:.1} s, seed {}: {verdict}", self.orders, self.seconds, self.seed)
    }
}

/// When orders began and ended, in seconds since the first one began.
struct Ends {
    ended: Vec<f64>,
    last_began: f64,
}

impl Ends {
    fn of(lives: &[Life]) -> Self {
        let first = lives.iter().filter_map(|life| life.started_at).min();
        let since = |at: Option<OffsetDateTime>| Some((at? - first?).as_seconds_f64());
        Ends {
            ended: lives.iter().filter_map(|life| since(life.ended_at)).collect(),
            last_began: lives.iter().filter_map(|life| since(life.started_at)).fold(0.0, f64::max),
        }
    }

    /// Those that end after the last order has begun end faster and faster, so they do not count.
    fn per_second(&self, warm_up: Duration) -> f64 {
        let warm_up = warm_up.as_secs_f64();
        let counted = self.ended.iter().filter(|&&at| (warm_up..self.last_began).contains(&at)).count();
        let seconds = self.last_began - warm_up;
        if seconds > 0.0 { counted as f64 / seconds } else { 0.0 }
    }

    fn in_second(&self) -> Vec<u32> {
        let mut counts = Vec::new();
        for at in &self.ended {
            let second = *at as usize;
            if counts.len() <= second {
                counts.resize(second + 1, 0);
            }
            counts[second] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(end: End) -> Life {
        Life {
            end,
            order_id: Some(uuid::Uuid::nil()),
            requests: 2,
            answered_after: Duration::from_millis(4),
            seen_ended_after: Some(Duration::from_millis(60)),
            started_at: Some(OffsetDateTime::UNIX_EPOCH),
            ended_at: Some(OffsetDateTime::UNIX_EPOCH + Duration::from_millis(40)),
            measured: true,
            cancelled_by_customer: false,
            has_to_be_confirmed: false,
        }
    }

    #[test]
    fn a_cancelled_order_has_ended_and_a_lost_one_has_not() {
        let good = [life(End::Confirmed), life(End::Cancelled("reserve_stock".to_owned()))];
        let report = Report::new(1, Duration::from_secs(1), Duration::ZERO, &good);
        assert!(report.passed && report.repeated_requests == 2 && report.saga_confirmed.count == 1);
        for end in [End::Lost, End::Unfinished("PENDING".to_owned()), End::Refused("422".to_owned())] {
            let report = Report::new(1, Duration::from_secs(1), Duration::ZERO, &[life(End::Confirmed), life(end)]);
            assert!(!report.passed && report.defects.len() == 1);
        }
    }

    #[test]
    fn an_order_that_could_be_filled_and_paid_is_confirmed() {
        for (end, passed) in [(End::Confirmed, true), (End::Cancelled("detect_timeout".to_owned()), false)] {
            let life = Life { has_to_be_confirmed: true, ..life(end) };
            assert_eq!(Report::new(1, Duration::from_secs(1), Duration::ZERO, &[life]).passed, passed);
        }
    }

    #[test]
    fn a_customer_s_cancellation_does_not_count_as_slowness() {
        let mut cancelled = life(End::Cancelled("cancel_order_on_request".to_owned()));
        cancelled.cancelled_by_customer = true;
        cancelled.ended_at = Some(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(60));
        let report = Report::new(1, Duration::from_secs(1), Duration::ZERO, &[life(End::Confirmed), cancelled]);
        assert_eq!((report.saga.count, report.saga.max_ms.round()), (1, 40.0));
    }

    #[test]
    fn only_ends_between_warm_up_and_the_last_beginning_count_as_speed() {
        let began_and_ended = |began: u64, ended: u64| Life {
            started_at: Some(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(began)),
            ended_at: Some(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(ended)),
            ..life(End::Confirmed)
        };
        let lives = [began_and_ended(0, 1), began_and_ended(1, 4), began_and_ended(3, 6), began_and_ended(10, 12)];
        let report = Report::new(1, Duration::from_secs(12), Duration::from_secs(2), &lives);
        assert_eq!(report.ended_per_second, 2.0 / 8.0);
        assert_eq!(report.ended_in_second, [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
    }
}
