//! The report of one run, as Markdown: the steps, the claims, the suite's answers, the journals of the sagas, and the audit.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use reports::Table;
use time::OffsetDateTime;

use super::{
    record::{Exchanges, Line, Record, Step},
    timeline::{self, SagaPath},
};
use crate::audit;

pub(super) struct Evidence<'a> {
    /// Names the file.
    pub(super) key: &'a str,
    pub(super) title: &'a str,
    pub(super) about: &'a str,
    pub(super) verdict: &'a str,
    pub(super) at: OffsetDateTime,
    /// What was running: names and versions.
    pub(super) versions: &'a [(String, String)],
    pub(super) record: &'a Record,
    pub(super) paths: &'a [SagaPath],
    pub(super) audit: Option<&'a audit::Report>,
}

pub(super) fn write(folder: &Path, evidence: &Evidence<'_>) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("{}-{}.md", timeline::stamp(evidence.at), evidence.key));
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    std::fs::write(&path, markdown(evidence)).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

fn markdown(evidence: &Evidence<'_>) -> String {
    let Evidence { title, about, verdict, at, versions, record, paths, audit, .. } = evidence;
    let mut text = String::new();
    let took = record.elapsed().as_secs_f64();
    let _ = writeln!(text, "# {title}\n\n{}.\n", capitalized(about));
    let _ = writeln!(text, "**{verdict}**, {}, {took:.1} s\n", timeline::moment(*at));
    let mut running = Table::new(["", ""]);
    versions.iter().for_each(|(name, version)| running.row([name.clone(), version.clone()]));
    let _ = writeln!(text, "{}\n## What happened\n", running.markdown());
    for (number, step) in (1..).zip(&record.lock().steps) {
        write_step(&mut text, number, step);
    }
    if !paths.is_empty() {
        let _ = writeln!(text, "## The sagas\n\n{}", timeline::markdown(paths));
    }
    if let Some(report) = audit {
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
        let text = markdown(&Evidence {
            key: "08",
            title: "8 NATS down",
            about: "the broker is away",
            verdict: "FAIL",
            at: OffsetDateTime::UNIX_EPOCH,
            versions: &[("NATS".to_owned(), "2.9.10".to_owned())],
            record: &record,
            paths: &[],
            audit: Some(&report),
        });
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
