//! What a run of chaos found, as JSON and as tables for people, and whether that is good enough.

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::Context;
use serde::Serialize;

use crate::{
    conservation::Conservation,
    excuse::Cancelled,
    history::milliseconds,
    nemesis::Kind,
    recovery::{KindReport, Struck},
    verdict::Findings,
};

/// How many recoveries of each kind must have been measured.
const LEAST_MEASURED: usize = 2;
/// Fewer measurements have no 99th percentile, only a maximum.
const LEAST_FOR_P99: usize = 20;
/// The share of seconds in which conservation must have been looked at.
const LEAST_SNAPSHOTS: f64 = 0.8;
/// How many failures of a kind are listed.
const EXAMPLES: usize = 20;
/// Goodput 30 s after a burst, against that before it.
const GOODPUT_AFTER_BURST: f64 = 95.0;

/// What a run must at least consist of.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Demands {
    /// How many percent of the orders that have to be confirmed outages may cancel.
    pub most_cancelled_percent: f64,
    pub orders: usize,
    pub faults: u64,
    pub nemeses: usize,
    /// Whether recovery times count.
    pub recovery: bool,
}

/// Everything about one run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub seconds: u64,
    pub rate: u32,
    pub demands: Demands,
    /// Keys that clients ordered under.
    pub orders: usize,
    pub acknowledged: usize,
    pub requests: u64,
    pub faults: u64,
    /// Different nemeses that struck.
    pub nemeses: usize,
    pub phases: Vec<Struck>,
    pub lost: usize,
    pub doubled: u64,
    pub drift: u64,
    /// How many orders have come to which end.
    pub outcomes: BTreeMap<String, usize>,
    /// Orders with a good card and enough stock, that nobody cancelled.
    pub has_to_be_confirmed: usize,
    /// Those of them that were cancelled, and why.
    pub cancelled_by_outages: Vec<Cancelled>,
    pub findings: Findings,
    pub conservation: Conservation,
    /// The audit's violations, with what a nemesis explains taken out.
    pub audit: Vec<String>,
    /// Why the suite did not get well again.
    pub unwell: Vec<String>,
    pub settled_seconds: u64,
    pub kinds: Vec<KindReport>,
    /// From due to answered and to ended while nothing was broken: median, 99th percentile.
    pub quiet_answer_ms: (Option<u64>, Option<u64>),
    pub quiet_end_ms: (Option<u64>, Option<u64>),
    /// Of each burst: goodput 30 s after it, in percent of that before it.
    pub goodput_after_burst_percent: Vec<f64>,
    /// Processes that ended by themselves and were started again.
    pub unplanned_ends: Vec<String>,
}

impl Report {
    /// Everything that makes the run a failure, in sentences.
    pub fn failures(&self) -> Vec<String> {
        let others = [
            ("drift", &self.conservation.violations),
            ("unwell", &self.unwell),
            ("audit", &self.audit),
            ("ended by itself", &self.unplanned_ends),
        ];
        let mut failures = by_kind(self.findings.kinds().into_iter().chain(others), EXAMPLES);
        if (self.conservation.snapshots as f64) < LEAST_SNAPSHOTS * (self.seconds + self.settled_seconds) as f64 {
            failures.push(format!("money and stock were looked at {} times only", self.conservation.snapshots));
        }
        failures.extend(self.phases.iter().filter_map(|p| Some(format!("{}: {}", p.nemesis, p.error.as_ref()?))));
        let Demands { orders, faults, nemeses, recovery, most_cancelled_percent } = self.demands;
        if self.cancelled_percent() > most_cancelled_percent {
            failures.push(format!(
                "outages cancelled {} of {} orders that had to be confirmed, and {most_cancelled_percent} % is the most",
                self.cancelled_by_outages.len(),
                self.has_to_be_confirmed,
            ));
        }
        if self.orders < orders || self.faults < faults || self.nemeses < nemeses {
            failures
                .push(format!("too little happened: asked for {orders} orders, {faults} faults, {nemeses} nemeses"));
        }
        if recovery {
            failures.extend(self.late_recoveries());
        }
        failures
    }

    /// How many orders were cancelled because of which outages.
    fn cancellations(&self) -> BTreeMap<String, usize> {
        let mut cancellations = BTreeMap::new();
        for order in &self.cancelled_by_outages {
            *cancellations.entry(order.during.join(", ")).or_default() += 1;
        }
        cancellations
    }

    fn cancelled_percent(&self) -> f64 {
        100.0 * self.cancelled_by_outages.len() as f64 / self.has_to_be_confirmed.max(1) as f64
    }

    fn late_recoveries(&self) -> Vec<String> {
        let mut late = Vec::new();
        for kind in Kind::ALL {
            let target = milliseconds(kind.recovery_target());
            let report = self.kinds.iter().find(|report| report.kind == kind);
            let measured = report.map_or(0, |report| report.measured);
            if measured < LEAST_MEASURED {
                late.push(format!("{kind:?}: recovery was measured {measured} times only"));
            }
            let unfinished = report.map_or(0, |report| report.unfinished);
            if unfinished > 0 {
                late.push(format!("{kind:?}: {unfinished} recoveries did not come in the quiet that followed"));
            }
            if let Some(p99) = report.and_then(|report| report.recovery_p99_ms).filter(|p99| *p99 > target) {
                late.push(format!("{kind:?}: recovery took {p99} ms, {target} ms are asked for"));
            }
        }
        if self.goodput_after_burst_percent.is_empty() {
            late.push("goodput after a burst was not measured".to_owned());
        }
        for goodput in self.goodput_after_burst_percent.iter().filter(|goodput| **goodput < GOODPUT_AFTER_BURST) {
            late.push(format!("goodput 30 s after a burst is {goodput:.0} % of that before it"));
        }
        late
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}  {} s  {} orders/s", self.seed, self.seconds, self.rate)?;
        writeln!(
            f,
            "orders {} (acknowledged {}, {} requests)  faults {}  nemeses {}  phases {}",
            self.orders,
            self.acknowledged,
            self.requests,
            self.faults,
            self.nemeses,
            self.phases.len()
        )?;
        writeln!(
            f,
            "lost {}  doubled {}  drift {}  snapshots {} ({} skipped)  settled in {} s",
            self.lost,
            self.doubled,
            self.drift,
            self.conservation.snapshots,
            self.conservation.skipped,
            self.settled_seconds,
        )?;
        writeln!(
            f,
            "had to be confirmed {}  cancelled by outages {} ({:.2} %)",
            self.has_to_be_confirmed,
            self.cancelled_by_outages.len(),
            self.cancelled_percent(),
        )?;
        for (during, orders) in self.cancellations() {
            writeln!(f, "  cancelled {orders:>4}: {during}")?;
        }
        for (outcome, orders) in &self.outcomes {
            writeln!(f, "  outcome {orders:>6}  {outcome}")?;
        }
        writeln!(f, "{}", HEADER)?;
        for kind in &self.kinds {
            writeln!(f, "{}", row(kind))?;
        }
        let [answer, end] = [self.quiet_answer_ms, self.quiet_end_ms].map(|(p50, p99)| [ms(p50), ms(p99)].join(" / "));
        writeln!(f, "undisturbed: answered after {answer} ms, ended after {end} ms (p50 / p99)")?;
        for goodput in &self.goodput_after_burst_percent {
            writeln!(f, "goodput 30 s after a burst: {goodput:.0} % of that before it")?;
        }
        let failures = self.failures();
        failures.iter().try_for_each(|failure| writeln!(f, "FAILED  {failure}"))?;
        writeln!(f, "{}", if failures.is_empty() { "chaos: passed" } else { "chaos: FAILED" })
    }
}

const HEADER: &str = "kind          phases faults  recovery n / p50 / p99 ms, or max  goodput  answered p50 / p99 ms   ended p50 / p99 ms";

fn row(report: &KindReport) -> String {
    format!(
        "{:13} {:>6} {:>6}  {:>10} / {:>5} / {:>6} {:7}   {:>7}  {:>12} / {:>6}   {:>10} / {:>6}",
        format!("{:?}", report.kind),
        report.phases,
        report.faults,
        report.measured,
        ms(report.recovery_p50_ms),
        ms(report.recovery_p99_ms),
        if report.measured < LEAST_FOR_P99 { "max" } else { "" },
        report.goodput_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %")),
        ms(report.answer_p50_ms),
        ms(report.answer_p99_ms),
        ms(report.end_p50_ms),
        ms(report.end_p99_ms),
    )
}

/// A figure, or that there is none.
pub fn ms(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// What was found, in sentences: of each kind so many, and how many there are.
pub fn by_kind<'a>(found: impl IntoIterator<Item = (&'a str, &'a Vec<String>)>, most: usize) -> Vec<String> {
    let told = |(kind, found): (&str, &Vec<String>)| {
        let more = (found.len() > most).then(|| format!("{kind}: {} in all", found.len()));
        found.iter().take(most).map(|one| format!("{kind}: {one}")).chain(more).collect::<Vec<_>>()
    };
    found.into_iter().flat_map(told).collect()
}

/// Writes a report as JSON, and prints where it is and what people read of it.
pub fn publish(report: &(impl Serialize + fmt::Display), folder: &Path, name: &str) -> anyhow::Result<()> {
    save(report, folder, name)?;
    print!("{report}");
    Ok(())
}

/// Writes a report as JSON, and prints where it is.
pub fn save(report: &impl Serialize, folder: &Path, name: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, serde_json::to_vec_pretty(report)?)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    println!("report: {}", path.display());
    Ok(())
}
