//! Quotes of the sources in documents: functions, as `path::name`, the tour that consists of them, and one step in full.

use std::collections::{BTreeSet, VecDeque};

use super::{documents, links, section};
use crate::{prelude::*, sources::read};

/// The questions of the tour, by their anchors, and how many files may answer each.
const TOUR: [(&str, usize); 4] = [
    ("where-is-stock-reserved", 3),
    ("where-is-an-event-published", 3),
    ("where-is-a-duplicate-dropped", 2),
    ("how-does-a-timeout-compensate", 4),
];

#[test]
fn every_function_that_a_document_names_exists() -> Test {
    let mut count = 0;
    for (document, text) in documents()? {
        for (file, name) in functions(&text) {
            count += 1;
            ensure!(defines(&read(&file)?, name), "{document} names {name} of {file}");
        }
    }
    ensure!(count >= 12, "only {count} functions are named");
    Ok(())
}

#[test]
fn the_tour_answers_each_question_in_few_files() -> Test {
    let architecture = read("ARCHITECTURE.md")?;
    for (question, limit) in TOUR {
        let answer = section(&architecture, question).with_context(|| format!("the tour has no section {question}"))?;
        let files: BTreeSet<_> = functions(answer).map(|(file, _)| file).collect();
        ensure!((1..=limit).contains(&files.len()), "{question} takes {} files, not {limit}", files.len());
    }
    let readme = read("README.md")?;
    ensure!(links(&readme).any(|target| target == "ARCHITECTURE.md#the-tour"), "the README does not lead to the tour");
    Ok(())
}

/// The README quotes a step: `// ...` stands for omitted lines, and nothing else may differ.
#[test]
fn the_readmes_step_is_quoted_from_the_source() -> Test {
    let readme = read("README.md")?;
    let (before, block) = readme.split_once("```rust\n").context("the README shows no step")?;
    let shown = block.split("```").next().unwrap_or_default();
    let (file, name) = functions(before).last().context("the README does not name the source of its step")?;
    let source = read(&file)?;
    let body = source.split(&format!("fn {name}(")).nth(1).with_context(|| format!("{file} has no {name}"))?;
    let body = body.split_inclusive("\n}\n").next().unwrap_or_default();
    let lines = |text: &str| -> VecDeque<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let (shown, mut left) = (lines(shown), lines(body));
    let mut skips = false;
    for (at, line) in shown.iter().enumerate() {
        if line == "// ..." {
            skips = true;
            continue;
        }
        while skips && left.front().is_some_and(|next| next != line) {
            left.pop_front();
        }
        skips = false;
        let next = left.pop_front().unwrap_or_default();
        // The source was split at the beginning of the signature.
        ensure!(*line == next || (at == 0 && line.ends_with(&next)), "{name} has {next:?} instead of {line:?}");
    }
    ensure!(left.is_empty(), "the README leaves out {left:?} without saying so");
    Ok(())
}

/// Every `path.rs::name` of a text.
fn functions(text: &str) -> impl Iterator<Item = (String, &str)> {
    text.split('`').filter_map(|word| {
        let (file, name) = word.split_once(".rs::")?;
        (!word.contains(char::is_whitespace)).then(|| (format!("{file}.rs"), name))
    })
}

fn defines(source: &str, name: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "const", "static"];
    kinds.iter().any(|kind| {
        source
            .split(&format!("{kind} {name}"))
            .skip(1)
            .any(|rest| rest.starts_with(|c: char| !c.is_alphanumeric() && c != '_'))
    })
}
