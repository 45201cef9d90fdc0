//! Who takes part is said once, in `shared/contracts/src/manifest.rs`. A list of the participants anywhere else is read or made
//! from it, or it would be forgotten when one more takes part.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::ensure;
use contracts::SERVICES;

use crate::Test;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Made from the manifest; `./scripts/check generated` or a test compares.
const MADE: &[&str] =
    &[".env", ".sqlx", "docker", "docker-compose.yml", "grafana/alerts", "grafana/dashboards", "tests/golden"];

/// About single participants by their names: what they decide, what becomes of an order among them, and tests of that.
const ABOUT_SINGLE_ONES: &[&str] = &[
    "Cargo.lock",
    "docs",
    "migrations",
    "services",
    "shared/contracts/src",
    "tools/console/src/demo/scenarios",
    "tools/console/src/samples.tsv",
    "tools/console/tests",
    "tools/gateway_simulator",
    "tools/provision/tests",
    "proof/model",
    "proof/planted",
    "proof/upgrade",
    "scripts/bench.d",
    "tests/tests",
];

/// Lines and rows of lines elsewhere that name several, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("grafana/boards/palette.py", "the colours of the reasons why orders are cancelled"),
    ("grafana/boards/sagas.py", "the way of an order, hop by hop"),
    ("proof/chaos/src/sweep/load.rs", "a request that each knows"),
    ("scripts/check.d/compose_rules.py", "what is broken in a copy to see that it is noticed"),
    ("shared/saga/src/state.rs", "two services of a test"),
    ("tests/src/replica.rs", "each service as it is composed"),
    ("tests/src/stage.rs", "those that tests move by name"),
    ("tools/console/src/demo/stage/orders.rs", "both undos of an order"),
    ("tools/console/src/suite/mod.rs", "the REST contract of each"),
];

#[test]
fn participants_are_listed_nowhere_but_in_the_manifest() -> Test {
    let listed = listing_files()?;
    let allowed: BTreeSet<String> = ALLOWED.iter().map(|(file, _)| (*file).to_owned()).collect();
    let more: Vec<_> = listed.difference(&allowed).collect();
    ensure!(
        more.is_empty(),
        "these list the participants; they shall read contracts::PARTICIPANTS, or be made from it: {more:?}"
    );
    let gone: Vec<_> = allowed.difference(&listed).collect();
    ensure!(gone.is_empty(), "these do so no more: {gone:?}");
    Ok(())
}

#[test]
fn a_list_on_one_line_or_on_several_is_noticed() {
    let names = SERVICES.map(|service| service.0);
    assert!(lists_participants(&format!("for name in {}; do", names.join(" "))));
    assert!(lists_participants(&format!("[{}]", names.map(str::to_uppercase).join(", "))));
    assert!(lists_participants(&names.map(|name| format!("(\"{name}_service\", 1),")).join("\n")));
    assert!(!lists_participants(&format!("use contracts::{{{}}};", names.map(str::to_uppercase).join(", "))));
    assert!(!lists_participants("the order's payment\nis in order"));
}

/// The files that list participants, but for those that may.
fn listing_files() -> anyhow::Result<BTreeSet<String>> {
    let exempt = |file: &str| {
        let below =
            |folder: &&str| file.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        MADE.iter().chain(ABOUT_SINGLE_ONES).any(below) || file.ends_with(".md")
    };
    let mut files = Vec::new();
    walk(Path::new(ROOT), "", &mut files)?;
    files.retain(|file| !exempt(file));
    let lists =
        |file: &String| fs::read_to_string(Path::new(ROOT).join(file)).is_ok_and(|text| lists_participants(&text));
    Ok(files.into_iter().filter(lists).collect())
}

/// Every file below the folder that is no product of a build or a run.
fn walk(folder: &Path, prefix: &str, files: &mut Vec<String>) -> Test {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if [".git", ".run", "target", "node_modules", "dist"].contains(&name.as_str()) {
            continue;
        }
        let file = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{file}/"), files)?;
        } else {
            files.push(file);
        }
    }
    Ok(())
}

/// Whether a line names two of them besides the first, whose name is a word of every day; or three lines in a row name
/// another one each. Imports do not count.
fn lists_participants(text: &str) -> bool {
    let imports = |line: &&str| line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ");
    let named: Vec<BTreeSet<&str>> = text.lines().filter(|line| !imports(line)).map(named).collect();
    let on_one_line = |names: &BTreeSet<&str>| names.iter().filter(|name| **name != SERVICES[0].0).count() > 1;
    let in_a_row = |lines: &[BTreeSet<&str>]| {
        lines.iter().all(|names| names.len() == 1) && lines.iter().flatten().collect::<BTreeSet<_>>().len() == 3
    };
    named.iter().any(on_one_line) || named.windows(3).any(in_a_row)
}

fn named(line: &str) -> BTreeSet<&'static str> {
    let line = line.to_lowercase();
    let words: BTreeSet<&str> = line.split(|c: char| !c.is_ascii_alphabetic()).collect();
    SERVICES.iter().map(|service| service.0).filter(|name| words.contains(name)).collect()
}
