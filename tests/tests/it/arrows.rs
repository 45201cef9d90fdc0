//! Dependency rules between crates, and what business code must not import.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use contracts::{SERVICES, order_fulfillment::SAGA};
use saga::Service;

use crate::{prelude::*, sources};

/// The crates that each crate depends on.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The libraries, which must not depend on the domain of orders.
const LIBRARIES: [&str; 9] =
    ["bootstrap", "faults", "messaging", "orchestrator", "resilience", "saga", "saga_store", "testkit", "webhook"];

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

/// Compares exactly: an allowed dependency that is no longer used fails, too.
#[test]
fn services_are_seen_by_the_model_and_the_tests_only() -> Test {
    let arrows = arrows()?;
    let mut services: Vec<_> = SERVICES.iter().map(|service| service.0).collect();
    services.sort_unstable();
    let modelled = |service: &&str| arrows.get("model").is_some_and(|sees| sees.contains(*service));
    let by_whom = |service: &&'static str| match modelled(service) {
        true => (*service, vec!["model", "suite_tests"]),
        false => (*service, vec!["suite_tests"]),
    };
    let mut rules: Vec<_> = services.iter().map(by_whom).collect();
    rules.push(("participant", [services, vec!["suite_tests"]].concat()));
    rules.push(("console", vec!["chaos", "planted", "suite_tests", "upgrade"]));
    for (name, allowed) in rules {
        let who: Vec<_> = arrows.iter().filter(|(_, sees)| sees.contains(name)).map(|(who, _)| who.as_str()).collect();
        ensure!(who == allowed, "{name} is seen by {who:?}, and allowed are {allowed:?}");
    }
    Ok(())
}

/// Released migrations cannot change. The last of these keeps the behaviour of an earlier build.
#[test]
fn no_library_table_names_a_step() -> Test {
    let released = ["0001_saga_instance.sql", "0012_late_receipts_additive.sql", "0015_reopened_additive.sql"];
    for library in ["messaging", "saga_store", "webhook"] {
        for file in sources::files(&format!("shared/{library}/migrations"), ".sql")? {
            let text = sources::read(&file)?;
            let named = SAGA.steps.iter().find(|step| text.contains(&format!("'{}'", step.name)));
            let known = released.iter().any(|name| file.ends_with(name));
            ensure!(known || named.is_none(), "{file} names {:?}", named.map(|step| step.name));
        }
    }
    Ok(())
}

#[test]
fn libraries_do_not_depend_on_the_contracts() -> Test {
    let arrows = arrows()?;
    for library in LIBRARIES {
        let sees = arrows.get(library).with_context(|| format!("there is no {library}"))?;
        ensure!(!sees.contains("contracts"), "{library} depends on the contracts");
    }
    Ok(())
}

/// A room that can be taken out: only what assembles a service, or its tables, knows it.
#[test]
fn the_webhook_is_seen_by_participants_and_provision_only() -> Test {
    let arrows = arrows()?;
    let who: Vec<_> = arrows.iter().filter(|(_, sees)| sees.contains("webhook")).map(|(who, _)| who.as_str()).collect();
    ensure!(who == ["participant", "provision"], "the webhook is seen by {who:?}");
    Ok(())
}

#[test]
fn pure_crates_do_no_io() -> Test {
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
fn every_step_is_a_function_of_its_name() -> Test {
    for step in SAGA.steps {
        let folder = step.service.map_or("shared/saga_store/src".to_owned(), |s| format!("services/{s}/src"));
        let function = format!("async fn {}(", step.name);
        let files = sources::files(&folder, ".rs")?;
        let defined = files.iter().filter(|file| sources::read(file).is_ok_and(|text| text.contains(&function)));
        ensure!(defined.count() == 1, "{folder} does not define {} once", step.name);
    }
    Ok(())
}

#[test]
fn every_service_has_the_same_modules() -> Test {
    for Service(service) in SERVICES {
        for room in ["main.rs", "lib.rs", "config.rs", "domain.rs", "http.rs", "steps.rs", "store.rs"] {
            let file = format!("services/{service}/src/{room}");
            ensure!(sources::path(&file).exists(), "{file} is missing");
        }
    }
    Ok(())
}

#[test]
fn only_some_files_of_a_service_use_faults_events_and_sql() -> Test {
    let rules: [(&str, &[&str], &str); 4] = [
        ("faults::", &["/src/lib.rs"], "imports faults"),
        // A step returns its events, so the saga's journal records all that is published.
        (".publish(", &[], "publishes by itself"),
        // Catalogue changes belong to no saga.
        ("outbox.claim(", &["/catalogue.rs"], "claims a batch by itself"),
        ("sqlx::query", &["/src/store/", "/src/store.rs"], "has SQL in it"),
    ];
    for (file, text) in sources::services()? {
        for (forbidden, except_in, does) in rules {
            let allowed = except_in.iter().any(|place| file.contains(place));
            ensure!(allowed || !text.contains(forbidden), "{file} {does}");
        }
    }
    Ok(())
}

pub(crate) fn packages() -> anyhow::Result<Vec<Value>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(sources::path(""))
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(metadata["packages"].as_array().context("no packages")?.clone())
}
