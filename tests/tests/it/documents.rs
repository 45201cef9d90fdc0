//! What the documents say is what the code is: pictures, figures, and whatever they name or link to.

mod code;
mod crates;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use contracts::order_fulfillment::SAGA;

use crate::Test;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Documents that a program has written; the names in them are no tests.
const GENERATED: [&str; 2] = ["METRICS.md", "docs/proof.md"];

#[test]
fn the_saga_page_shows_the_saga_as_it_is() -> Test {
    let page = read("docs/saga.md")?;
    let picture = page.split("```mermaid\n").nth(1).and_then(|rest| rest.split("```").next());
    let picture = picture.context("docs/saga.md has no Mermaid picture")?;
    ensure!(picture == SAGA.to_mermaid(), "docs/saga.md is out of date; its picture should be:\n{}", SAGA.to_mermaid());
    Ok(())
}

#[test]
fn the_broker_permissions_are_those_of_the_saga() -> Test {
    let written = read("docker/nats.conf")?;
    ensure!(
        written == provision::nats_conf::render(),
        "docker/nats.conf is out of date: `provision nats-conf` prints it"
    );
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
    for entry in fs::read_dir(format!("{ROOT}/docs/decisions"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let text = read(&format!("docs/decisions/{name}"))?;
        let parts = ["\nDecided on 20", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"];
        ensure!(parts.iter().all(|part| text.contains(part)), "{name} lacks a date or a part");
        ensure!(links(&index).filter(|target| *target == name).count() == 1, "{name} is not in the index once");
    }
    Ok(())
}

/// Each line of the README's results holds only numbers of the section that it links to.
#[test]
fn the_readmes_results_are_those_of_the_reports() -> Test {
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
            ensure!(known.contains(&number), "the README says {number}, which is not in {link}: {row}");
        }
    }
    Ok(())
}

#[test]
fn every_link_between_documents_leads_somewhere() -> Test {
    let mut broken = Vec::new();
    for document in documents()? {
        let text = fs::read_to_string(&document)?;
        for target in links(&text).filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { document.clone() } else { document.with_file_name(file) };
            let found = match anchor {
                "" => path.exists(),
                _ => fs::read_to_string(&path).is_ok_and(|text| section(&text, anchor).is_some()),
            };
            if !found {
                broken.push(format!("{} -> {target}", document.display()));
            }
        }
    }
    ensure!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

#[test]
fn every_file_and_script_that_a_document_names_exists() -> Test {
    let mut missing = Vec::new();
    for document in documents()? {
        let text = fs::read_to_string(&document)?;
        let files = text.split('`').filter(|word| {
            word.contains('/')
                && !word.contains(|c: char| c.is_whitespace() || "*<:".contains(c))
                && !word.starts_with(['/', '.'])
                && [".rs", ".sql", ".md", ".toml", ".conf", ".yml"].iter().any(|ending| word.ends_with(ending))
        });
        let words = text.split(|c: char| c.is_whitespace() || "`()|,;".contains(c));
        let scripts = words.filter(|word| word.starts_with("./scripts/")).map(|word| word.trim_end_matches(['.', ':']));
        // A crate's README names its own files from its folder.
        let exists = |name: &str| Path::new(ROOT).join(name).exists() || document.with_file_name(name).exists();
        let named = files.chain(scripts).filter(|name| !exists(name));
        missing.extend(named.map(|name| format!("{} names {name}", document.display())));
    }
    ensure!(missing.is_empty(), "{missing:#?}");
    Ok(())
}

/// Names of tests are sentences, so they are told from other names by their length.
#[test]
fn every_test_that_a_document_names_exists() -> Test {
    let mut functions = BTreeSet::new();
    for folder in ["services", "tools", "shared", "tests", "proof"] {
        functions_in(&Path::new(ROOT).join(folder), &mut functions)?;
    }
    let metrics = read("METRICS.md")?;
    let mut named = 0;
    for document in documents()?.iter().filter(|path| !GENERATED.iter().any(|name| path.ends_with(name))) {
        let text = fs::read_to_string(document)?;
        let sentences = text.split('`').filter(|word| {
            word.matches('_').count() >= 4
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        });
        for sentence in sentences {
            if metrics.contains(sentence) {
                continue;
            }
            named += 1;
            ensure!(
                functions.contains(sentence),
                "{} names the test {sentence}, which is not there",
                document.display()
            );
        }
    }
    ensure!(named >= 40, "only {named} tests are named");
    Ok(())
}

fn read(file: &str) -> anyhow::Result<String> {
    fs::read_to_string(format!("{ROOT}/{file}")).with_context(|| format!("{file} cannot be read"))
}

/// All that people read: every Markdown file of the repository.
fn documents() -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name.as_str()) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    Ok(found)
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

/// The anchor that a heading gets: its letters and digits, and a hyphen for each space.
fn slug(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Every number, without the commas between its thousands; those of names such as p99 are left out.
fn numbers(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != ',');
    let words = words.map(|word| word.trim_end_matches(|c: char| !c.is_ascii_digit()));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(|word| word.replace(',', "")).collect()
}

fn functions_in(folder: &Path, found: &mut BTreeSet<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            functions_in(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            found.extend(names.map(str::to_owned));
        }
    }
    Ok(())
}
