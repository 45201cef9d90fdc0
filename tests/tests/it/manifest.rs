//! The participants are listed once, in `shared/contracts/src/manifest.rs`. Every other list is read or generated from it;
//! otherwise a new participant would be missing there.

use std::collections::BTreeSet;

use contracts::SERVICES;

use crate::{prelude::*, sources};

/// Generated from the manifest; `./scripts/check generated` or a test compares.
const MADE: &[&str] = &[
    ".env",
    ".sqlx",
    "shared/contracts/participants.tsv",
    "deploy/kubernetes/base/participants.yaml",
    "docker",
    "docker-compose.cluster.yml",
    "docker-compose.yml",
    "grafana/alerts",
    "grafana/dashboards",
    "tests/golden",
];

/// Files about single participants: their decisions, and tests of them.
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

/// Other files with a line, or consecutive lines, that name several participants, and the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("grafana/boards/palette.py", "the colours of the reasons why orders are cancelled"),
    ("grafana/boards/sagas.py", "the way of an order, hop by hop"),
    ("proof/chaos/src/sweep/load.rs", "a request to each"),
    ("scripts/check.d/compose_rules.py", "breaks a copy to test the checks"),
    ("shared/saga/src/state.rs", "two services of a test"),
    ("tests/src/participants.rs", "those that tests address by name"),
    ("tests/src/replica.rs", "each service as it is composed"),
    ("tests/src/running.rs", "each service as a process"),
    ("tools/console/src/demo/scenario_run/orders.rs", "both undos of an order"),
    ("tools/console/src/suite/mod.rs", "the REST contract of each"),
];

#[test]
fn participants_are_listed_only_in_the_manifest() -> Test {
    let listed = listing_files()?;
    let allowed: BTreeSet<String> = ALLOWED.iter().map(|(file, _)| (*file).to_owned()).collect();
    let more: Vec<_> = listed.difference(&allowed).collect();
    let instead = "read contracts::PARTICIPANTS instead, or generate the list";
    ensure!(more.is_empty(), "these files list the participants; {instead}: {more:?}");
    let gone: Vec<_> = allowed.difference(&listed).collect();
    ensure!(gone.is_empty(), "these files no longer list them: {gone:?}");
    Ok(())
}

#[test]
fn lists_on_one_line_or_several_are_found() {
    let names = SERVICES.map(|service| service.0);
    assert!(lists_participants(&format!("for name in {}; do", names.join(" "))));
    assert!(lists_participants(&format!("[{}]", names.map(str::to_uppercase).join(", "))));
    assert!(lists_participants(&names.map(|name| format!("(\"{name}_service\", 1),")).join("\n")));
    assert!(!lists_participants(&format!("use contracts::{{{}}};", names.map(str::to_uppercase).join(", "))));
    assert!(!lists_participants("the order's payment\nis in order"));
}

/// The files that list participants and are not exempt.
fn listing_files() -> anyhow::Result<BTreeSet<String>> {
    let exempt = |file: &str| {
        let below =
            |folder: &&str| file.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        MADE.iter().chain(ABOUT_SINGLE_ONES).any(below) || file.ends_with(".md")
    };
    let lists = |file: &String| sources::read(file).is_ok_and(|text| lists_participants(&text));
    Ok(sources::files("", "")?.into_iter().filter(|file| !exempt(file)).filter(lists).collect())
}

/// Whether one line names two participants other than the first, whose name is an everyday word, or three consecutive lines
/// name a different one each. Imports do not count.
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
