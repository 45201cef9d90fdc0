//! The result of a load: how many orders ended how, and how long they took.

use std::{collections::BTreeMap, fmt, time::Duration};

use reports::{Table, shortened};
use serde::Serialize;
use time::OffsetDateTime;

use super::{
    client::{End, OrderResult},
    latency::Latency,
};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Every order was accepted and has ended, and those that could be filled and paid are confirmed.
    pub(super) passed: bool,
    seed: u64,
    orders: usize,
    seconds: f64,
    /// Orders that ended per second while orders were placed, without the warm-up, by the suite's clock.
    ended_per_second: f64,
    /// How many ended in each second since the first one began.
    ended_in_second: Vec<u32>,
    /// Repeated placement requests.
    repeated_requests: u32,
    outcomes: BTreeMap<String, usize>,
    /// Orders that did not end as they must: id and reason.
    defects: Vec<String>,
    /// From the moment an order was due to the answer to its placement.
    answer: Latency,
    /// From the start of the saga to its end, by the suite's clock; without customers' cancellations.
    saga: Latency,
    /// Those of them that were confirmed.
    saga_confirmed: Latency,
    /// From the moment an order was due until its client saw the end of its saga; the same orders as `saga`.
    seen_by_client: Latency,
    /// From a read to its answer.
    reads: Latency,
    /// Why the others failed; they are no defects of orders.
    failed_reads: Vec<String>,
}

impl Report {
    pub(super) fn new(seed: u64, took: Duration, warm_up: Duration, results: &[OrderResult]) -> Self {
        let mut outcomes = BTreeMap::new();
        for result in results {
            *outcomes.entry(outcome(&result.end)).or_default() += 1;
        }
        let measured = || results.iter().filter(|result| result.measured);
        let not_cancelled = || measured().filter(|result| !result.cancelled_by_customer);
        let reads = || results.iter().filter_map(|result| result.read.as_ref());
        let ends = Ends::of(results);
        let confirmed = || not_cancelled().filter(|result| result.end == End::Confirmed);
        let defects: Vec<String> = results.iter().filter(|result| !result.is_good()).map(defect).collect();
        Report {
            passed: defects.is_empty(),
            seed,
            orders: results.len(),
            seconds: took.as_secs_f64(),
            ended_per_second: ends.per_second(warm_up),
            ended_in_second: ends.in_second(),
            repeated_requests: results.iter().map(|result| result.requests.saturating_sub(1)).sum(),
            outcomes,
            defects,
            answer: Latency::of(measured().filter(|l| l.order_id.is_some()).map(|l| l.answered_after)),
            saga: Latency::of(not_cancelled().filter_map(OrderResult::saga_took)),
            saga_confirmed: Latency::of(confirmed().filter_map(OrderResult::saga_took)),
            seen_by_client: Latency::of(not_cancelled().filter_map(|result| result.seen_ended_after)),
            reads: Latency::of(reads().filter_map(|read| read.as_ref().ok().copied())),
            failed_reads: reads().filter_map(|read| read.as_ref().err().cloned()).collect(),
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
        End::Unfinished(_) => "UNFINISHED".to_owned(),
    }
}

fn defect(result: &OrderResult) -> String {
    let order = result.order_id.map_or_else(|| "an order".to_owned(), |id| format!("order {id}"));
    match &result.end {
        End::Refused(why) => format!("{order} was refused: {why}"),
        End::Unanswered(why) => format!("{order} was never answered: {why}"),
        End::Unfinished(state) => format!("{order} has not ended: {state}"),
        End::Cancelled(step) => format!("{order} could be filled and paid, and was cancelled at {step}"),
        _ => format!("{order} was acknowledged and lost"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        for (outcome, count) in &self.outcomes {
            writeln!(f, "{count:>8}  {outcome}")?;
        }
        writeln!(f, "{:>8}  requests were repeated", self.repeated_requests)?;
        shortened(&self.defects, SHOWN, self.defects.len())
            .try_for_each(|defect| writeln!(f, "          - {defect}"))?;
        let mut table = Table::new(["milliseconds", "orders", "p50", "p95", "p99", "max"]);
        for (name, latency) in [
            ("due to answered", &self.answer),
            ("saga, start to end", &self.saga),
            ("  the confirmed ones", &self.saga_confirmed),
            ("due to end seen by client", &self.seen_by_client),
        ] {
            let Latency { count, p50_ms, p95_ms, p99_ms, max_ms, .. } = latency;
            let [p50, p95, p99, max] = [p50_ms, p95_ms, p99_ms, max_ms].map(|ms| format!("{ms:.1}"));
            table.row([name.to_owned(), count.to_string(), p50, p95, p99, max]);
        }
        if self.reads.count > 0 || !self.failed_reads.is_empty() {
            let Latency { count, p95_ms, .. } = self.reads;
            writeln!(f, "\n{count} reads, 95 of 100 within {p95_ms:.1} ms; {} failed", self.failed_reads.len())?;
            shortened(&self.failed_reads, SHOWN, self.failed_reads.len())
                .try_for_each(|why| writeln!(f, "          - {why}"))?;
        }
        let verdict = if self.passed { "every order ended as it must" } else { "NOT every order ended as it must" };
        writeln!(f, "\n{table}\n{:.1} orders ended a second while orders were placed", self.ended_per_second)?;
        writeln!(f, "{} orders in {:.1} s, seed {}: {verdict}", self.orders, self.seconds, self.seed)
    }
}

/// When orders began and ended, in seconds since the first one began.
struct Ends {
    ended: Vec<f64>,
    last_began: f64,
}

impl Ends {
    fn of(results: &[OrderResult]) -> Self {
        let first = results.iter().filter_map(|result| result.started_at).min();
        let since = |at: Option<OffsetDateTime>| Some((at? - first?).as_seconds_f64());
        Ends {
            ended: results.iter().filter_map(|result| since(result.ended_at)).collect(),
            last_began: results.iter().filter_map(|result| since(result.started_at)).fold(0.0, f64::max),
        }
    }

    /// Ends after the last order began do not count: the load falls, so orders end faster.
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

    fn result(end: End) -> OrderResult {
        OrderResult {
            end,
            order_id: Some(uuid::Uuid::nil()),
            requests: 2,
            answered_after: Duration::from_millis(4),
            seen_ended_after: Some(Duration::from_millis(60)),
            started_at: Some(OffsetDateTime::UNIX_EPOCH),
            ended_at: Some(OffsetDateTime::UNIX_EPOCH + Duration::from_millis(40)),
            measured: true,
            ..OrderResult::default()
        }
    }

    #[test]
    fn a_cancelled_order_has_ended_and_a_lost_one_has_not() {
        let good = [result(End::Confirmed), result(End::Cancelled("reserve_stock".to_owned()))];
        let report = Report::new(1, Duration::from_secs(1), Duration::ZERO, &good);
        assert!(report.passed && report.repeated_requests == 2 && report.saga_confirmed.count == 1);
        for end in [End::Lost, End::Unfinished("PENDING".to_owned()), End::Refused("422".to_owned())] {
            let report = Report::new(1, Duration::from_secs(1), Duration::ZERO, &[result(End::Confirmed), result(end)]);
            assert!(!report.passed && report.defects.len() == 1);
        }
    }

    #[test]
    fn an_order_that_can_be_filled_and_paid_must_be_confirmed() {
        for (end, passed) in [(End::Confirmed, true), (End::Cancelled("detect_timeout".to_owned()), false)] {
            let result = OrderResult { has_to_be_confirmed: true, ..result(end) };
            assert_eq!(Report::new(1, Duration::from_secs(1), Duration::ZERO, &[result]).passed, passed);
        }
    }

    #[test]
    fn a_customer_s_cancellation_is_not_in_the_saga_latency() {
        let mut cancelled = result(End::Cancelled("cancel_order_on_request".to_owned()));
        cancelled.cancelled_by_customer = true;
        cancelled.ended_at = Some(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(60));
        let report = Report::new(1, Duration::from_secs(1), Duration::ZERO, &[result(End::Confirmed), cancelled]);
        assert_eq!((report.saga.count, report.saga.max_ms.round()), (1, 40.0));
    }

    #[test]
    fn reads_are_counted_and_fail_no_load() {
        let read = |read| OrderResult { read: Some(read), ..result(End::Confirmed) };
        let mut results: Vec<_> = (1..=100).map(|ms| read(Ok(Duration::from_millis(ms)))).collect();
        results.extend([read(Err("no answer".to_owned())), result(End::Confirmed)]);
        let report = Report::new(1, Duration::from_secs(1), Duration::ZERO, &results);
        assert!(report.passed, "a demonstration breaks services, and what reads from them");
        let shown = report.to_string();
        assert!(shown.contains("\n100 reads, 95 of 100 within 95.0 ms; 1 failed\n"), "{shown}");
        assert!(shown.contains("- no answer"), "{shown}");
        let without = Report::new(1, Duration::from_secs(1), Duration::ZERO, &[result(End::Confirmed)]).to_string();
        assert!(!without.contains("reads"), "{without}");
    }

    #[test]
    fn only_ends_between_warm_up_and_last_start_count_as_throughput() {
        let began_and_ended = |began: u64, ended: u64| OrderResult {
            started_at: Some(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(began)),
            ended_at: Some(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(ended)),
            ..result(End::Confirmed)
        };
        let results = [began_and_ended(0, 1), began_and_ended(1, 4), began_and_ended(3, 6), began_and_ended(10, 12)];
        let report = Report::new(1, Duration::from_secs(12), Duration::from_secs(2), &results);
        assert_eq!(report.ended_per_second, 2.0 / 8.0);
        assert_eq!(report.ended_in_second, [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
    }
}
