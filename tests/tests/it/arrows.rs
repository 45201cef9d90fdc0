//! Who may depend on whom, and what business code may not know.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::Test;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Every arrow between our own crates. `tests` sees everything and is seen by nobody.
const ALLOWED: &[(&str, &[&str])] = &[
    ("saga", &[]),
    ("faults", &[]),
    ("resilience", &["saga"]),
    ("testkit", &[]),
    ("bootstrap", &[]),
    ("contracts", &["saga"]),
    ("messaging", &["saga", "faults", "resilience"]),
    ("saga_store", &["saga", "faults", "messaging"]),
    ("participant", &["bootstrap", "contracts", "faults", "messaging", "resilience", "saga", "saga_store"]),
    ("order", &["bootstrap", "contracts", "faults", "messaging", "participant", "saga", "saga_store"]),
    ("inventory", &["bootstrap", "contracts", "faults", "messaging", "participant", "saga", "saga_store"]),
    ("payment", &["bootstrap", "contracts", "faults", "messaging", "participant", "resilience", "saga", "saga_store"]),
    ("gateway_simulator", &["bootstrap", "contracts"]),
    ("provision", &["contracts", "messaging", "saga"]),
    ("console", &["bootstrap", "contracts", "saga"]),
    ("chaos", &["console", "contracts", "faults", "saga", "testkit"]),
    ("planted", &["chaos", "console", "contracts", "saga", "testkit"]),
    ("upgrade", &["chaos", "console", "contracts", "saga", "testkit"]),
    // Only the pure decisions of the services.
    ("model", &["contracts", "inventory", "order", "payment", "saga"]),
    ("bench", &["contracts", "faults", "messaging", "resilience", "saga"]),
];

#[test]
fn no_crate_depends_on_one_that_it_may_not_see() -> Test {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let packages = packages()?;
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    for package in &packages {
        let name = package["name"].as_str().context("a package without a name")?;
        if name == "suite_tests" {
            continue;
        }
        let allowed = allowed.get(name).with_context(|| format!("{name} has no arrows yet: add it to the table"))?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev";
            // Tests may have servers, and the outside world.
            let helps_tests = in_tests && ["testkit", "gateway_simulator"].contains(&to);
            let seen = !ours.contains(&to) || allowed.contains(&to) || helps_tests;
            ensure!(seen, "{name} depends on {to}, an arrow that the architecture does not have");
        }
    }
    Ok(())
}

#[test]
fn pure_crates_see_no_io() -> Test {
    for package in packages()? {
        if !["saga", "contracts"].contains(&package["name"].as_str().unwrap_or_default()) {
            continue;
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            ensure!(!["tokio", "sqlx", "async-nats", "reqwest", "axum"].contains(&to), "{} does IO", package["name"]);
        }
    }
    Ok(())
}

#[test]
fn business_files_never_import_faults() -> Test {
    for service in ["order", "inventory", "payment"] {
        let folder = Path::new(ROOT).join("services").join(service).join("src");
        for file in files_below(&folder)? {
            let composition = file.ends_with("src/lib.rs");
            let text = fs::read_to_string(&file)?;
            ensure!(composition || !text.contains("faults::"), "{} knows of faults", file.display());
        }
    }
    Ok(())
}

#[test]
fn every_service_has_the_same_rooms() -> Test {
    for service in ["order", "inventory", "payment"] {
        for room in ["main.rs", "lib.rs", "config.rs", "domain.rs", "http.rs", "steps.rs", "store.rs"] {
            let path = Path::new(ROOT).join("services").join(service).join("src").join(room);
            ensure!(path.exists(), "{} is missing", path.display());
        }
    }
    Ok(())
}

#[test]
fn sql_is_nowhere_but_in_the_store() -> Test {
    for service in ["order", "inventory", "payment"] {
        let folder = Path::new(ROOT).join("services").join(service).join("src");
        for file in files_below(&folder)? {
            let text = fs::read_to_string(&file)?;
            let in_store = file.starts_with(folder.join("store")) || file.ends_with("src/store.rs");
            ensure!(in_store || !text.contains("sqlx::query"), "{} has SQL in it", file.display());
        }
    }
    Ok(())
}

fn packages() -> anyhow::Result<Vec<Value>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(ROOT)
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(metadata["packages"].as_array().context("no packages")?.clone())
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}
