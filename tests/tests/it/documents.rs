//! The documents match the code: pictures, figures, and every name and link in them.

mod code;
mod crates;

use std::{collections::BTreeSet, fs};

use contracts::order_fulfillment::SAGA;

use crate::{
    prelude::*,
    sources::{self, path, read},
};

/// Generated documents; the names in them are not checked against tests.
const GENERATED: [&str; 2] = ["METRICS.md", "docs/proof.md"];

#[test]
fn the_saga_page_shows_the_table_of_steps() -> Test {
    let page = read("docs/saga.md")?;
    let picture = page.split("```mermaid\n").nth(1).and_then(|rest| rest.split("```").next());
    let picture = picture.context("docs/saga.md has no Mermaid picture")?;
    ensure!(picture == SAGA.to_mermaid(), "docs/saga.md is out of date; its picture should be:\n{}", SAGA.to_mermaid());
    Ok(())
}

#[test]
fn the_page_of_planted_bugs_lists_the_patches() -> Test {
    let series = read("proof/planted/series")?;
    let patches: Vec<_> = series.lines().filter(|line| !line.starts_with(['#', '0'])).collect();
    let page = read("docs/planted-bugs.md")?;
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    ensure!(rows == patches, "docs/planted-bugs.md lists {rows:?}, and the patches are {patches:?}");
    Ok(())
}

#[test]
fn every_decision_is_dated_explained_and_in_the_index() -> Test {
    let index = read("docs/decisions/README.md")?;
    for file in sources::files("docs/decisions", ".md")? {
        let name = file.trim_start_matches("docs/decisions/");
        if name == "README.md" {
            continue;
        }
        let text = read(&file)?;
        let parts = ["\nDecided on 20", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"];
        ensure!(parts.iter().all(|part| text.contains(part)), "{name} lacks a date or a part");
        ensure!(links(&index).filter(|target| *target == name).count() == 1, "{name} is not in the index once");
    }
    Ok(())
}

/// Each line of the README's results holds only numbers of the section that it links to, and no missed target is left out.
#[test]
fn the_readmes_results_match_the_reports() -> Test {
    let readme = read("README.md")?;
    let results = section(&readme, "results").context("the README has no results")?;
    let rows: Vec<_> = results.lines().filter_map(|line| line.split_once("](")).collect();
    ensure!(!rows.is_empty(), "the README's results link to no report");
    for (row, link) in rows {
        let link = link.split(')').next().unwrap_or_default();
        let (file, anchor) = link.split_once('#').with_context(|| format!("{link} names no section"))?;
        let report = read(file)?;
        let report = section(&report, anchor).with_context(|| format!("{file} has no section {anchor}"))?;
        let known = numbers(report);
        for number in numbers(row) {
            ensure!(known.contains(&number), "{number} of the README is not in {link}: {row}");
        }
    }
    let performance = read("docs/performance.md")?;
    let measured = section(&performance, "the-last-full-run").context("no run is reported")?;
    let shown = numbers(results);
    for missed in measured.lines().filter(|line| line.ends_with(" NO")) {
        let value = missed
            .split_whitespace()
            .take_while(|word| !matches!(*word, ">=" | "<="))
            .filter(|word| word.parse::<f64>().is_ok())
            .last();
        let value = value.with_context(|| format!("a target without a figure: {missed}"))?;
        ensure!(shown.iter().any(|number| number == value), "the README leaves out a missed target: {missed}");
    }
    Ok(())
}

#[test]
fn every_scenario_that_a_document_runs_exists() -> Test {
    let table = read("tools/console/src/demo/scenarios.rs")?;
    let known: BTreeSet<&str> =
        table.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(' ')).map(|(n, _)| n).collect();
    let (mut run, mut unknown) = (0, Vec::new());
    for (document, text) in documents()? {
        for arguments in text.split("./scripts/demo ").skip(1) {
            let words = arguments.split([' ', '`', '\n']).map_while(|word| word.parse::<u32>().ok());
            let numbers: Vec<String> = words.map(|number| number.to_string()).collect();
            run += numbers.len();
            unknown.extend(
                numbers.into_iter().filter(|number| !known.contains(&**number)).map(|n| format!("{document}: {n}")),
            );
        }
    }
    ensure!(run > 10 && unknown.is_empty(), "{run} are run, and there is none of {unknown:?}");
    Ok(())
}

/// Fifteen minutes: a row for each, in order.
#[test]
fn the_talk_takes_as_long_as_it_says() -> Test {
    let page = read("docs/talk.md")?;
    let minutes: Vec<u32> =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok()).collect();
    ensure!(minutes == (0..15).collect::<Vec<_>>(), "{minutes:?}");
    ensure!(read("README.md")?.contains("](docs/talk.md)"), "the README does not lead to it");
    Ok(())
}

#[test]
fn every_link_between_documents_resolves() -> Test {
    let mut broken = Vec::new();
    for (document, text) in documents()? {
        for target in links(&text).filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { path(&document) } else { path(&document).with_file_name(file) };
            let found = match anchor {
                "" => path.exists(),
                _ => fs::read_to_string(&path).is_ok_and(|text| section(&text, anchor).is_some()),
            };
            if !found {
                broken.push(format!("{document} -> {target}"));
            }
        }
    }
    ensure!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

#[test]
fn every_file_and_script_that_a_document_names_exists() -> Test {
    let mut missing = Vec::new();
    for (document, text) in documents()? {
        let files = text.split('`').filter(|word| {
            word.contains('/')
                && !word.contains(|c: char| c.is_whitespace() || "*<:".contains(c))
                && !word.starts_with(['/', '.'])
                && [".rs", ".sql", ".md", ".toml", ".conf", ".yml"].iter().any(|ending| word.ends_with(ending))
        });
        let words = text.split(|c: char| c.is_whitespace() || "`()|,;".contains(c));
        let scripts = words.filter(|word| word.starts_with("./scripts/")).map(|word| word.trim_end_matches(['.', ':']));
        // A crate's README names its own files from its folder.
        let exists = |name: &str| path(name).exists() || path(&document).with_file_name(name).exists();
        let named = files.chain(scripts).filter(|name| !exists(name));
        missing.extend(named.map(|name| format!("{document} names {name}")));
    }
    ensure!(missing.is_empty(), "{missing:#?}");
    Ok(())
}

/// Test names are sentences, so their length tells them apart from other names.
#[test]
fn every_test_that_a_document_names_exists() -> Test {
    let mut functions = BTreeSet::new();
    for folder in ["services", "tools", "shared", "tests", "proof"] {
        for file in sources::files(folder, ".rs")? {
            let text = read(&file)?;
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            functions.extend(names.map(str::to_owned));
        }
    }
    let metrics = read("METRICS.md")?;
    let mut named = 0;
    for (document, text) in documents()?.into_iter().filter(|(file, _)| !GENERATED.contains(&file.as_str())) {
        let sentences = text.split('`').filter(|word| {
            word.matches('_').count() >= 4
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        });
        for sentence in sentences {
            if metrics.contains(sentence) {
                continue;
            }
            named += 1;
            ensure!(functions.contains(sentence), "{document} names the test {sentence}, which is not there");
        }
    }
    ensure!(named >= 40, "only {named} tests are named");
    Ok(())
}

/// Every Markdown file of the repository, with its text.
fn documents() -> anyhow::Result<Vec<(String, String)>> {
    sources::files("", ".md")?.into_iter().map(|file| Ok((file.clone(), read(&file)?))).collect()
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next())
}

/// From the heading with this anchor up to the next one of its level or above.
fn section<'t>(text: &'t str, anchor: &str) -> Option<&'t str> {
    let level = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
    let headings: Vec<&str> = prose(text).filter(|line| line.starts_with('#')).collect();
    let first = headings.iter().position(|heading| slug(heading) == anchor)?;
    let next = headings[first + 1..].iter().find(|heading| level(heading) <= level(headings[first]));
    let at = |line: &str| line.as_ptr() as usize - text.as_ptr() as usize;
    Some(&text[at(headings[first])..next.map_or(text.len(), |heading| at(heading))])
}

/// The anchor of a heading: its letters and digits, and a hyphen for each space.
fn slug(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Every number, without thousands separators; those of names such as p99 are left out.
fn numbers(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != ',');
    let words = words.map(|word| word.trim_end_matches(|c: char| !c.is_ascii_digit()));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(|word| word.replace(',', "")).collect()
}
