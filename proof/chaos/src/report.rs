//! The report of a chaos run, as JSON and as tables, and whether the run passed.

use std::{collections::BTreeMap, fmt, path::Path};

use reports::{Table, or_dash, shortened, write_failures, write_json};
use serde::Serialize;

use crate::{
    conservation::Conservation,
    excuse::Cancelled,
    history::milliseconds,
    nemesis,
    recovery::{KindReport, Latency, Struck},
    verdict::Violations,
};

/// The least number of measured recoveries of each kind.
const LEAST_MEASURED: usize = 2;
/// With fewer measurements the 99th percentile is only a maximum.
const LEAST_FOR_P99: usize = 20;
/// The share of seconds with a conservation check.
const LEAST_SNAPSHOTS: f64 = 0.8;
/// How many failures of a kind are listed.
const EXAMPLES: usize = 20;
/// Goodput 30 s after a burst, against that before it.
const GOODPUT_AFTER_BURST: f64 = 95.0;

/// The least amounts of a run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Demands {
    /// The percentage of orders that must be confirmed which outages may cancel.
    pub most_cancelled_percent: f64,
    pub orders: usize,
    pub faults: u64,
    pub nemeses: usize,
    /// Whether recovery times are judged.
    pub recovery: bool,
}

/// Everything about one run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub seconds: u64,
    pub rate: u32,
    pub demands: Demands,
    /// Idempotency keys that clients used.
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
    /// The number of orders by their end.
    pub outcomes: BTreeMap<String, usize>,
    /// Orders with a good card, enough stock and no cancellation by the customer.
    pub has_to_be_confirmed: usize,
    /// Those of them that were cancelled, and why.
    pub cancelled_by_outages: Vec<Cancelled>,
    /// Such orders whose sagas a coordinator drives; they are not among those above.
    pub orchestrated: usize,
    /// Those of them that have to be confirmed: with no outage, or recovery from one, during their lives.
    pub undisturbed: usize,
    pub findings: Violations,
    pub conservation: Conservation,
    /// The audit's violations, except those that a nemesis explains.
    pub audit: Vec<String>,
    /// Why the suite did not recover.
    pub unwell: Vec<String>,
    pub settled_seconds: u64,
    pub kinds: Vec<KindReport>,
    /// Latencies without an outage.
    pub quiet: Latency,
    /// For each burst: goodput 30 s after it, in percent of that before it.
    pub goodput_after_burst_percent: Vec<f64>,
    /// Processes that ended unexpectedly and were started again.
    pub unplanned_ends: Vec<String>,
}

impl Report {
    /// All failures of the run, in sentences.
    pub fn failures(&self) -> Vec<String> {
        let others = [
            ("drift", &self.conservation.violations),
            ("unwell", &self.unwell),
            ("audit", &self.audit),
            ("ended by itself", &self.unplanned_ends),
        ];
        let mut failures = by_kind(self.findings.kinds().into_iter().chain(others), EXAMPLES);
        if (self.conservation.snapshots as f64) < LEAST_SNAPSHOTS * (self.seconds + self.settled_seconds) as f64 {
            failures.push(format!("money and stock were checked only {} times", self.conservation.snapshots));
        }
        failures.extend(self.phases.iter().filter_map(|p| Some(format!("{}: {}", p.nemesis, p.error.as_ref()?))));
        let Demands { orders, faults, nemeses, recovery, most_cancelled_percent } = self.demands;
        if self.cancelled_percent() > most_cancelled_percent {
            failures.push(format!(
                "outages cancelled {} of {} orders that had to be confirmed, with a limit of {most_cancelled_percent} %",
                self.cancelled_by_outages.len(),
                self.has_to_be_confirmed,
            ));
        }
        if self.orchestrated > 0 && self.undisturbed == 0 {
            failures
                .push(format!("of {} orchestrated orders none was undisturbed, so none was judged", self.orchestrated));
        }
        if self.orders < orders || self.faults < faults || self.nemeses < nemeses {
            failures
                .push(format!("too little happened: demanded are {orders} orders, {faults} faults, {nemeses} nemeses"));
        }
        if recovery {
            failures.extend(self.late_recoveries());
        }
        failures
    }

    /// The number of orders that were cancelled during each combination of outages.
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
        for kind in nemesis::kinds() {
            let target = milliseconds(kind.recovery_target());
            let report = self.kinds.iter().find(|report| report.kind == kind);
            let measured = report.map_or(0, |report| report.measured);
            if measured < LEAST_MEASURED {
                late.push(format!("{kind:?}: recovery was measured only {measured} times"));
            }
            let unfinished = report.map_or(0, |report| report.unfinished);
            if unfinished > 0 {
                late.push(format!("{kind:?}: {unfinished} recoveries did not come in the quiet that followed"));
            }
            if let Some(p99) = report.and_then(|report| report.recovery.p99_ms).filter(|p99| *p99 > target) {
                late.push(format!("{kind:?}: recovery took {p99} ms, with a target of {target} ms"));
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
        let Report { seed, seconds, rate, orders, acknowledged, requests, faults, nemeses, .. } = self;
        let Report { lost, doubled, drift, settled_seconds, has_to_be_confirmed, .. } = self;
        let Report { orchestrated, undisturbed, .. } = self;
        let Conservation { snapshots, skipped, .. } = &self.conservation;
        let (phases, cancelled, percent) =
            (self.phases.len(), self.cancelled_by_outages.len(), self.cancelled_percent());
        writeln!(f, "seed {seed}  {seconds} s  {rate} orders/s")?;
        writeln!(
            f,
            "orders {orders} (acknowledged {acknowledged}, {requests} requests)  faults {faults}  \
             nemeses {nemeses}  phases {phases}"
        )?;
        writeln!(
            f,
            "lost {lost}  doubled {doubled}  drift {drift}  snapshots {snapshots} ({skipped} skipped)  \
             settled in {settled_seconds} s"
        )?;
        writeln!(f, "had to be confirmed {has_to_be_confirmed}  cancelled by outages {cancelled} ({percent:.2} %)")?;
        for (during, orders) in self.cancellations() {
            writeln!(f, "  cancelled {orders:>4}: {during}")?;
        }
        writeln!(f, "orchestrated {orchestrated}  undisturbed, so had to be confirmed {undisturbed}")?;
        for (outcome, orders) in &self.outcomes {
            writeln!(f, "  outcome {orders:>6}  {outcome}")?;
        }
        let mut kinds = Table::new([
            "kind",
            "phases",
            "faults",
            "recovery n",
            "p50 / p99 ms, or max",
            "goodput",
            "answered p50 / p99 ms",
            "ended p50 / p99 ms",
        ]);
        for kind in &self.kinds {
            let max = if kind.measured < LEAST_FOR_P99 { " max" } else { "" };
            kinds.row([
                format!("{:?}", kind.kind),
                kind.phases.to_string(),
                kind.faults.to_string(),
                kind.measured.to_string(),
                format!("{}{max}", kind.recovery),
                or_dash(kind.goodput_percent.map(|percent| format!("{percent:.0} %"))),
                kind.latency.answer.to_string(),
                kind.latency.end.to_string(),
            ]);
        }
        let Latency { answer, end } = &self.quiet;
        writeln!(f, "{kinds}undisturbed: answered after {answer} ms, ended after {end} ms (p50 / p99)")?;
        for goodput in &self.goodput_after_burst_percent {
            writeln!(f, "goodput 30 s after a burst: {goodput:.0} % of that before it")?;
        }
        let verdict = write_failures(f, &self.failures())?;
        writeln!(f, "chaos: {verdict}")
    }
}

/// Violations as sentences: at most `most` of each kind, and the number of the rest.
pub fn by_kind<'a>(found: impl IntoIterator<Item = (&'a str, &'a Vec<String>)>, most: usize) -> Vec<String> {
    let listed = |(kind, found): (&'a str, &'a Vec<String>)| {
        shortened(found, most, found.len()).map(move |one| format!("{kind}: {one}"))
    };
    found.into_iter().flat_map(listed).collect()
}

/// Writes a report as JSON, and prints its path and its text.
pub fn publish(report: &(impl Serialize + fmt::Display), folder: &Path, name: &str) -> anyhow::Result<()> {
    save(report, folder, name)?;
    print!("{report}");
    Ok(())
}

/// Writes a report as JSON, and prints its path.
pub fn save(report: &impl Serialize, folder: &Path, name: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    write_json(report, &path)?;
    println!("report: {}", path.display());
    Ok(())
}
