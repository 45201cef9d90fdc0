//! The report of one run, as Markdown: the steps, the claims, the suite's answers, the journals of the sagas, and the audit.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use reports::Table;
use sqlx::Row;
use time::{OffsetDateTime, macros::format_description};
use uuid::Uuid;

use super::{
    record::{Exchanges, Line, Record, Step},
    scenario_run::ScenarioRun,
};
use crate::{
    audit::{self, AuditError, Stores},
    suite::{Saga, SagaStep, Suite, SuiteError},
};

/// How many different paths are shown in full.
const SHOWN_PATHS: usize = 6;
/// How many sagas are read.
const MOST_SAGAS: usize = 300;

/// Sagas with the same steps: the first of them, and how many there are.
struct SagaPath {
    saga: Saga,
    count: usize,
}

/// A run that has ended.
pub(super) struct Ending<'a> {
    /// Names the file.
    pub(super) key: &'a str,
    pub(super) name: &'a str,
    pub(super) about: &'a str,
    pub(super) environment: Environment,
    pub(super) report: Option<audit::Report>,
    pub(super) interrupted: bool,
}

/// What a run began on.
pub(super) struct Environment {
    /// By the database's clock, which all deadlines of the suite follow.
    now: OffsetDateTime,
    versions: [(&'static str, String); 3],
}

impl Environment {
    pub(super) async fn read(stores: &Stores, revision: &str) -> Result<Environment, AuditError> {
        let mut connection = audit::connect_database(&stores.database_url).await?;
        let row = sqlx::query("select now(), current_setting('server_version')").fetch_one(&mut connection).await?;
        let broker = audit::connect_broker(stores).await?;
        let versions = [
            ("suite", format!("{} ({revision})", env!("CARGO_PKG_VERSION"))),
            ("PostgreSQL", row.get(1)),
            ("NATS", broker.client().server_info().version),
        ];
        Ok(Environment { now: row.get(0), versions })
    }
}

pub(super) async fn write(folder: &Path, ending: &Ending<'_>, run: &ScenarioRun) -> anyhow::Result<PathBuf> {
    let sagas = run.record.lock().sagas.clone();
    // Without order there are no journals; the rest is still worth writing.
    let paths = paths(&run.home, &sagas).await.unwrap_or_default();
    let stamp = ending.environment.now.format(format_description!("[year][month][day]-[hour][minute][second]"))?;
    let path = folder.join(format!("{stamp}-{}.md", ending.key));
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    let text = markdown(ending, &run.record, &paths);
    std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

fn markdown(ending: &Ending<'_>, record: &Record, paths: &[SagaPath]) -> String {
    let Ending { name, about, environment: Environment { now, versions }, report, .. } = ending;
    let mut text = String::new();
    let verdict = if record.failed() == 0 { "PASS" } else { "FAIL" };
    let took = record.elapsed().as_secs_f64();
    let moment = now.format(format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC"));
    let _ = writeln!(text, "# {name}\n\n{}.\n", capitalized(about));
    let _ = writeln!(text, "**{verdict}**, {}, {took:.1} s\n", moment.unwrap_or_default());
    let mut running = Table::new(["", ""]);
    versions.iter().for_each(|(name, version)| running.row([(*name).to_owned(), version.clone()]));
    let _ = writeln!(text, "{}\n## What happened\n", running.markdown());
    for (number, step) in (1..).zip(&record.lock().steps) {
        write_step(&mut text, number, step);
    }
    if !paths.is_empty() {
        let _ = writeln!(text, "## The sagas\n");
        write_sagas(&mut text, paths);
        text.push('\n');
    }
    if let Some(report) = report {
        let _ = writeln!(text, "## The audit\n\n{}", audit_table(report));
    }
    text
}

fn write_step(text: &mut String, number: usize, step: &Step) {
    let _ = writeln!(text, "### {number}. {}\n\nAfter {:.1} s.\n", step.title, step.at.as_secs_f64());
    for line in &step.lines {
        let _ = match line {
            Line::Note(note) => writeln!(text, "- {note}"),
            Line::Claim { text: claim, holds: true } => writeln!(text, "- **ok** {claim}"),
            Line::Claim { text: claim, holds: false } => writeln!(text, "- **FAILED** {claim}"),
        };
    }
    if !step.lines.is_empty() {
        text.push('\n');
    }
    if step.exchanges.is_empty() {
        return;
    }
    let count: u64 = step.exchanges.iter().map(|same| same.count).sum();
    let _ = writeln!(text, "<details><summary>{count} requests</summary>\n\n```text");
    step.exchanges.iter().for_each(|same| write_exchanges(text, same));
    let _ = writeln!(text, "```\n\n</details>\n");
}

fn write_exchanges(text: &mut String, same: &Exchanges) {
    for shown in &same.shown {
        let _ = writeln!(text, "{}", shown.request);
        if let Some(body) = &shown.body {
            let _ = writeln!(text, "  {body}");
        }
        let _ = writeln!(text, "  -> {} ({} ms)", shown.answer, shown.took.as_millis());
    }
    let more = same.count.saturating_sub(same.shown.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  ... {more} more of this kind");
    }
}

/// The paths of these sagas, the most frequent first.
async fn paths(suite: &Suite, sagas: &[Uuid]) -> Result<Vec<SagaPath>, SuiteError> {
    let mut paths: Vec<SagaPath> = Vec::new();
    for saga in suite.sagas(sagas.iter().copied().take(MOST_SAGAS)).await? {
        match paths.iter_mut().find(|path| same_path(&path.saga, &saga)) {
            Some(path) => path.count += 1,
            None => paths.push(SagaPath { saga, count: 1 }),
        }
    }
    paths.sort_by_key(|path| std::cmp::Reverse(path.count));
    Ok(paths)
}

fn same_path(one: &Saga, other: &Saga) -> bool {
    let steps = |saga: &Saga| saga.steps.iter().map(|s| (s.step.clone(), s.status.clone())).collect::<Vec<_>>();
    one.status == other.status && steps(one) == steps(other)
}

fn write_sagas(text: &mut String, paths: &[SagaPath]) {
    for path in paths.iter().take(SHOWN_PATHS) {
        let others = match path.count {
            1 => String::new(),
            count => format!(", and {} more like it", count - 1),
        };
        let _ = writeln!(text, "### {} `{}`{others}\n", path.saga.status, path.saga.saga_id);
        let mut steps = Table::new(["", "after", "service", "step", "event", "status", "reason", "fault"]);
        path.saga.steps.iter().for_each(|step| steps.row(row(step, path.saga.started_at)));
        let _ = writeln!(text, "{}", steps.markdown());
    }
    let rest: usize = paths.iter().skip(SHOWN_PATHS).map(|path| path.count).sum();
    if rest > 0 {
        let _ = writeln!(text, "{rest} more sagas took other paths.\n");
    }
}

fn row(step: &SagaStep, started_at: OffsetDateTime) -> [String; 8] {
    let after = (step.occurred_at - started_at).as_seconds_f64();
    let SagaStep { position, service, step, event_type, status, reason, fault, .. } = step.clone();
    let (reason, fault) = (reason.unwrap_or_default(), fault.unwrap_or_default());
    [position.to_string(), format!("{after:.3} s"), service, step, event_type, status, reason, fault]
}

fn audit_table(report: &audit::Report) -> String {
    let mut table = Table::new(["invariant", "", "says"]);
    for verdict in &report.invariants {
        let found = if verdict.ok() { verdict.found() } else { format!("**{}**", verdict.found()) };
        table.row([verdict.name.to_owned(), found, verdict.sentence.clone()]);
    }
    let mut text = table.markdown() + "\n";
    for verdict in report.invariants.iter().filter(|verdict| verdict.violations > 0) {
        for example in &verdict.examples {
            let _ = writeln!(text, "- {}: {example}", verdict.name);
        }
    }
    text
}

fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Report, Verdict, Violations};

    #[test]
    fn a_report_has_steps_claims_and_violations() {
        let record = Record::new(Vec::new());
        record.step("The broker is stopped");
        record.line(Line::Note("nats".to_owned()));
        record.line(Line::Claim { text: "nothing is lost".to_owned(), holds: false });
        let found: Violations = ["order 1".to_owned()].into_iter().collect();
        let report = Report::new(vec![Verdict::new("order_terminal", "Orders end.", found)], Default::default());
        let versions = [("suite", "1"), ("PostgreSQL", "15"), ("NATS", "2.9.10")];
        let versions = versions.map(|(name, version)| (name, version.to_owned()));
        let ending = Ending {
            key: "08",
            name: "8 NATS down",
            about: "the broker is away",
            environment: Environment { now: OffsetDateTime::UNIX_EPOCH, versions },
            report: Some(report),
            interrupted: false,
        };
        let text = markdown(&ending, &record, &[]);
        for expected in [
            "# 8 NATS down",
            "The broker is away.",
            "**FAIL**, 1970-01-01 00:00:00 UTC",
            "| NATS | 2.9.10 |",
            "### 1. The broker is stopped",
            "- **FAILED** nothing is lost",
            "| order_terminal | **1 VIOLATED** | Orders end. |",
            "- order_terminal: order 1",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }
}
