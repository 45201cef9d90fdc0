//! METRICS.md, generated from the metrics of a running suite. With METRICS_MD=write it is written instead of compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use suite_tests::Family;

use super::Shown;
use crate::prelude::*;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../METRICS.md");

const HEAD: &str = "# Metrics

<!-- Made by ./scripts/check --fix shown, from what a running suite shows. A test compares it. -->

Every process serves its metrics at `/metrics`, as OpenMetrics text. Prometheus adds `job` (the service) and `instance`
(the replica). Counters begin at 0 with their process; what a transaction did is counted after its commit, by the replica
that committed it, so a sum over all replicas is the truth. A histogram *with exemplars* remembers for each bucket a trace
that was sampled. A duration is in seconds, an amount of money in minor units of its currency.
";

const SAMPLED: &str = "
## Read from the database and the broker

One replica of each service reads these every `METRICS_EVERY` (5 s), under a lease; the others do not show them. When that
replica is gone, another one takes over after twice that time.
";

const OWN: &str = "
## Counted by each replica
";

/// Compares the file with the metrics of the running suite.
pub(super) fn compare(shown: &Shown) -> Test {
    let text = render(shown)?;
    if std::env::var("METRICS_MD").is_ok_and(|mode| mode == "write") {
        return Ok(fs::write(FILE, text)?);
    }
    let file = fs::read_to_string(FILE).unwrap_or_default();
    let different = text.lines().zip(file.lines()).find(|(shown, file)| shown != file);
    ensure!(file == text, "METRICS.md is out of date: ./scripts/check --fix shown, and commit it; {different:?}");
    Ok(())
}

/// One row of a table.
#[derive(Default)]
struct Row<'s> {
    family: Option<&'s Family>,
    jobs: Vec<&'static str>,
    labels: BTreeSet<&'s str>,
    exemplars: bool,
}

fn render(shown: &Shown) -> anyhow::Result<String> {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for (job, scrape) in &shown.0 {
        for (name, family) in &scrape.families {
            let row = rows.entry(name).or_default();
            row.family.get_or_insert(family);
            row.jobs.push(job);
            row.labels.extend(family.samples.iter().flat_map(|s| s.labels.keys()).map(String::as_str));
            row.exemplars |= family.samples.iter().any(|s| s.trace_id.is_some());
        }
    }
    let shows = |name: &str| shown.0.iter().any(|(_, s)| s.families.get(name).is_some_and(|f| !f.samples.is_empty()));
    for name in rows.keys() {
        ensure!(shows(name), "{name} has no value: it is never set, or this test does not cause it");
    }
    let sampled: BTreeSet<&str> = sampled();
    for name in &sampled {
        ensure!(rows.contains_key(name), "{name} is listed as sampled, and no replica exposes it");
    }
    let mut text = HEAD.to_owned();
    text += OWN;
    table(&mut text, rows.iter().filter(|(name, _)| !sampled.contains(*name)))?;
    text += SAMPLED;
    table(&mut text, rows.iter().filter(|(name, _)| sampled.contains(*name)))?;
    Ok(text)
}

/// The gauges that one replica reads.
fn sampled() -> BTreeSet<&'static str> {
    let own = [order::samples(), inventory::samples(), payment::samples()];
    let own = own.iter().flatten().flat_map(|source| source.gauges);
    participant::sampled().chain(participant::WEBHOOK_SAMPLED).chain(own).map(|gauge| gauge.name).collect()
}

fn table<'r, 's: 'r>(text: &mut String, rows: impl Iterator<Item = (&'r &'s str, &'r Row<'s>)>) -> Test {
    writeln!(text, "\n| metric | type | unit | labels | who | what |\n|---|---|---|---|---|---|")?;
    for (name, row) in rows {
        let Some(family) = row.family else { continue };
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let kind = if row.exemplars { format!("{} with exemplars", family.kind) } else { family.kind.clone() };
        let labels: Vec<String> = row.labels.iter().filter(|l| **l != "le").map(|label| format!("`{label}`")).collect();
        let (unit, labels, who) = (unit(name), labels.join(", "), who(&row.jobs));
        writeln!(text, "| `{name}{suffix}` | {kind} | {unit} | {labels} | {who} | {} |", family.help)?;
    }
    Ok(())
}

fn unit(name: &str) -> &'static str {
    const UNITS: [(&str, &str); 6] = [
        ("_seconds", "s"),
        ("_bytes", "bytes"),
        ("_minor_units", "minor units"),
        ("_units", "units of stock"),
        ("_ratio", "0 to 1"),
        ("_info", "1"),
    ];
    UNITS.iter().find(|(suffix, _)| name.ends_with(suffix)).map_or("", |(_, unit)| unit)
}

/// `services` are the participants of sagas.
fn who(jobs: &[&str]) -> String {
    let participants = contracts::SERVICES.map(|service| service.0);
    match jobs.strip_prefix(&participants) {
        Some([]) => "services".to_owned(),
        Some(["console", "gateway_simulator"]) => "all".to_owned(),
        _ => jobs.join(", "),
    }
}
