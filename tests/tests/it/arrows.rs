//! Who may depend on whom, and what business code may not know.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, ensure};
use contracts::{SERVICES, order_fulfillment::SAGA};
use saga::Service;
use serde_json::Value;

use crate::Test;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What each crate sees of the others.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The libraries, which know nothing of orders.
const LIBRARIES: [&str; 7] = ["bootstrap", "faults", "messaging", "resilience", "saga", "saga_store", "testkit"];

fn arrows() -> anyhow::Result<Arrows> {
    let packages = packages()?;
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut arrows = Arrows::new();
    for package in &packages {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let names = dependencies.filter_map(|dependency| dependency["name"].as_str());
        let sees = names.filter(|name| ours.contains(name)).map(str::to_owned).collect();
        arrows.insert(package["name"].as_str().context("a package without a name")?.to_owned(), sees);
    }
    Ok(arrows)
}

/// Exactly those that are named: a permission that is not used any more fails, too.
#[test]
fn services_are_seen_by_the_model_and_the_tests_only() -> Test {
    let arrows = arrows()?;
    let mut services: Vec<_> = SERVICES.iter().map(|service| service.0).collect();
    services.sort_unstable();
    let mut rules: Vec<_> = services.iter().map(|service| (*service, vec!["model", "suite_tests"])).collect();
    rules.push(("participant", [services, vec!["suite_tests"]].concat()));
    rules.push(("console", vec!["chaos", "planted", "suite_tests", "upgrade"]));
    for (name, allowed) in rules {
        let who: Vec<_> = arrows.iter().filter(|(_, sees)| sees.contains(name)).map(|(who, _)| who.as_str()).collect();
        ensure!(who == allowed, "{name} is seen by {who:?}, and allowed are {allowed:?}");
    }
    Ok(())
}

#[test]
fn libraries_do_not_know_the_contracts() -> Test {
    let arrows = arrows()?;
    for library in LIBRARIES {
        let sees = arrows.get(library).with_context(|| format!("there is no {library}"))?;
        ensure!(!sees.contains("contracts"), "{library} knows the contracts");
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
    for Service(service) in SERVICES {
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
fn every_step_is_a_function_of_its_name() -> Test {
    for step in SAGA.steps {
        let folder = step.service.map_or("shared/saga_store/src".to_owned(), |s| format!("services/{s}/src"));
        let function = format!("async fn {}(", step.name);
        let defined = files_below(&Path::new(ROOT).join(&folder))?
            .into_iter()
            .filter(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(&function)));
        ensure!(defined.count() == 1, "{folder} does not define {} once", step.name);
    }
    Ok(())
}

/// A step answers: then the saga's journal knows of all that is published.
#[test]
fn no_service_publishes_past_its_journal() -> Test {
    for Service(service) in SERVICES {
        for file in files_below(&Path::new(ROOT).join("services").join(service).join("src"))? {
            let text = fs::read_to_string(&file)?;
            ensure!(!text.contains(".publish("), "{} publishes by itself", file.display());
            // What changes the catalogue is of no saga.
            let claims = text.contains("outbox.claim(") && !file.ends_with("catalogue.rs");
            ensure!(!claims, "{} claims a batch by itself", file.display());
        }
    }
    Ok(())
}

#[test]
fn every_service_has_the_same_rooms() -> Test {
    for Service(service) in SERVICES {
        for room in ["main.rs", "lib.rs", "config.rs", "domain.rs", "http.rs", "steps.rs", "store.rs"] {
            let path = Path::new(ROOT).join("services").join(service).join("src").join(room);
            ensure!(path.exists(), "{} is missing", path.display());
        }
    }
    Ok(())
}

#[test]
fn sql_is_nowhere_but_in_the_store() -> Test {
    for Service(service) in SERVICES {
        let folder = Path::new(ROOT).join("services").join(service).join("src");
        for file in files_below(&folder)? {
            let text = fs::read_to_string(&file)?;
            let in_store = file.starts_with(folder.join("store")) || file.ends_with("src/store.rs");
            ensure!(in_store || !text.contains("sqlx::query"), "{} has SQL in it", file.display());
        }
    }
    Ok(())
}

pub(crate) fn packages() -> anyhow::Result<Vec<Value>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(ROOT)
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(metadata["packages"].as_array().context("no packages")?.clone())
}

pub(crate) fn files_below(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
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
