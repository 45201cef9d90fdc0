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

/// `tests` sees everything, and its attribute nothing.
fn in_tests(package: &Value) -> bool {
    package["name"].as_str().is_some_and(|name| name.starts_with("suite_tests"))
}

/// What each crate sees of the others.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Every arrow between our own crates, as ARCHITECTURE.md says. `tests` sees everything and is seen by nobody.
fn written_arrows() -> anyhow::Result<Arrows> {
    let text = fs::read_to_string(Path::new(ROOT).join("ARCHITECTURE.md"))?;
    let (_, section) = text.split_once("## Who may see whom").context("the section is gone")?;
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let mut arrows = Arrows::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let (crates, sees) = row.trim_matches('|').split_once('|').with_context(|| format!("{row:?} is no row"))?;
        for name in names(crates) {
            ensure!(arrows.insert(name.clone(), names(sees)).is_none(), "{name} has two rows");
        }
    }
    Ok(arrows)
}

fn real_arrows() -> anyhow::Result<Arrows> {
    let packages = packages()?;
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut arrows = Arrows::new();
    for package in packages.iter().filter(|package| !in_tests(package)) {
        let mut sees = BTreeSet::new();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev";
            // Tests may have servers with their tables, and the outside world.
            let helps_tests = in_tests && ["testkit", "gateway_simulator", "provision"].contains(&to);
            if ours.contains(&to) && !helps_tests {
                sees.insert(to.to_owned());
            }
        }
        let name = package["name"].as_str().context("a package without a name")?;
        arrows.insert(name.to_owned(), sees);
    }
    Ok(arrows)
}

#[test]
fn crates_see_each_other_as_the_architecture_says() -> Test {
    let (written, real) = (written_arrows()?, real_arrows()?);
    let names: BTreeSet<_> = written.keys().chain(real.keys()).collect();
    for name in names {
        let (written, real) = (written.get(name), real.get(name));
        ensure!(written == real, "{name} sees {real:?}, and ARCHITECTURE.md says {written:?}");
    }
    Ok(())
}

#[test]
fn services_do_not_know_each_other_nor_messaging_the_contracts() -> Test {
    let arrows = real_arrows()?;
    for (name, sees) in &arrows {
        let knows_a_service = SERVICES.iter().any(|service| sees.contains(service.0));
        // It runs their pure decisions.
        ensure!(!knows_a_service || name == "model", "{name} knows a service: {sees:?}");
    }
    ensure!(!arrows["messaging"].contains("contracts"), "messaging knows the contracts");
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

fn packages() -> anyhow::Result<Vec<Value>> {
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
