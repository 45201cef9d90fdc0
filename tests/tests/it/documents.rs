//! What the documents say is what the code is.

use std::fs;

use anyhow::{Context, ensure};
use contracts::order_fulfillment::SAGA;

use crate::Test;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn the_readme_shows_the_saga_as_it_is() -> Test {
    let readme = fs::read_to_string(format!("{ROOT}/README.md"))?;
    let picture = readme.split("```mermaid\n").nth(1).and_then(|rest| rest.split("```").next());
    let picture = picture.context("the README has no Mermaid picture")?;
    ensure!(picture == SAGA.to_mermaid(), "the README's picture is out of date; it should be:\n{}", SAGA.to_mermaid());
    Ok(())
}

#[test]
fn the_readme_shows_only_scripts_that_exist() -> Test {
    let readme = fs::read_to_string(format!("{ROOT}/README.md"))?;
    for word in readme.split(|c: char| c.is_whitespace() || "`()|,;".contains(c)) {
        if let Some(script) = word.strip_prefix("./scripts/") {
            ensure!(fs::metadata(format!("{ROOT}/scripts/{script}")).is_ok(), "scripts/{script} does not exist");
        }
    }
    Ok(())
}

#[test]
fn the_broker_permissions_are_those_of_the_saga() -> Test {
    let written = fs::read_to_string(format!("{ROOT}/docker/nats.conf"))?;
    ensure!(
        written == provision::nats_conf::render(),
        "docker/nats.conf is out of date: `provision nats-conf` prints it"
    );
    Ok(())
}

#[test]
fn every_file_named_in_the_architecture_exists() -> Test {
    let text = fs::read_to_string(format!("{ROOT}/ARCHITECTURE.md"))?;
    for word in text.split('`') {
        let is_path = word.contains('/') && !word.contains(char::is_whitespace);
        if is_path && [".rs", ".sql", ".md", ".toml", ".conf"].iter().any(|ending| word.ends_with(ending)) {
            ensure!(
                fs::metadata(format!("{ROOT}/{word}")).is_ok(),
                "ARCHITECTURE.md names {word}, which does not exist"
            );
        }
    }
    Ok(())
}
