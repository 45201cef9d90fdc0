//! docs/layout.md lists every crate, its purpose and its dependencies, as Cargo has them. With CRATES_TABLE=write the table is
//! written instead of compared. Each crate has a README, and uses every dependency.

use std::{collections::BTreeMap, env, fs, path::Path};

use crate::{
    arrows::packages,
    prelude::*,
    sources::{files, path, read},
};

const BEGIN: &str = "<!-- crates: made by ./scripts/check --fix shown -->\n";
const END: &str = "<!-- end of crates -->";

/// Published libraries: their README is for another audience than this repository's pages.
const LIBRARIES: [&str; 2] = ["messaging", "saga_store"];

/// A crate of this workspace, from its Cargo.toml.
struct Crate {
    folder: String,
    name: String,
    description: String,
    sees: Vec<String>,
    tests_see: Vec<String>,
}

#[test]
fn the_table_of_crates_matches_cargo() -> Test {
    let layout = read("docs/layout.md")?;
    let (head, rest) = layout.split_once(BEGIN).context("docs/layout.md has no place for the crates")?;
    let (written, tail) = rest.split_once(END).context("the table of crates has no end")?;
    let table = table(&crates()?);
    if env::var("CRATES_TABLE").is_ok_and(|mode| mode == "write") {
        fs::write(path("docs/layout.md"), format!("{head}{BEGIN}{table}{END}{tail}"))?;
    } else {
        ensure!(
            written == table,
            "docs/layout.md is out of date: ./scripts/check --fix shown, and commit it; it should be\n{table}"
        );
    }
    Ok(())
}

#[test]
fn a_crate_uses_every_dependency() -> Test {
    for Crate { folder, name, sees, tests_see, .. } in crates()? {
        let mut sources = String::new();
        for file in files(&folder, ".rs")? {
            sources += &read(&file)?;
        }
        for other in sees.iter().chain(&tests_see) {
            ensure!(sources.contains(&format!("{other}::")), "{name} may see {other}, and never uses it");
        }
    }
    Ok(())
}

#[test]
fn every_crate_has_a_readme() -> Test {
    for Crate { folder, name, .. } in crates()? {
        let path = format!("{folder}/README.md");
        // Published libraries open with their own documentation.
        if LIBRARIES.contains(&name.as_str()) {
            continue;
        }
        let text = read(&path)?;
        ensure!(text.starts_with(&format!("# {name}\n")), "{path} does not begin with the crate's name");
        ensure!(text.contains("./scripts/"), "{path} does not show how to test or run the crate");
    }
    Ok(())
}

fn table(crates: &[Crate]) -> String {
    let code = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let rows = crates.iter().map(|Crate { folder, description, sees, tests_see, .. }| {
        let others = match (sees.is_empty(), tests_see.is_empty()) {
            (_, true) => code(sees),
            (true, false) => format!("(tests: {})", code(tests_see)),
            (false, false) => format!("{} (tests: {})", code(sees), code(tests_see)),
        };
        format!("| [`{folder}`](../{folder}) | {description} | {others} |\n")
    });
    format!("| crate | what it is | what it sees of the others |\n|---|---|---|\n{}", rows.collect::<String>())
}

/// All crates of the workspace, by folder, in the order of a first reading.
fn crates() -> anyhow::Result<Vec<Crate>> {
    let packages = packages()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let folders: BTreeMap<String, String> = packages
        .iter()
        .map(|package| Some((text(&package["name"])?, folder_of(package)?)))
        .collect::<Option<_>>()
        .context("a package without a name or a folder")?;
    let mut crates = Vec::new();
    for package in &packages {
        let name = text(&package["name"]).context("a package without a name")?;
        let description = text(&package["description"]).with_context(|| format!("{name} has no description"))?;
        let mut seen = [Vec::new(), Vec::new()];
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            if folders.contains_key(to) {
                seen[usize::from(dependency["kind"] == "dev")].push(to.to_owned());
            }
        }
        for names in &mut seen {
            names.sort_unstable();
            // A crate may also be used by the build script.
            names.dedup();
        }
        let [sees, mut tests_see] = seen;
        tests_see.retain(|to| !sees.contains(to));
        crates.push(Crate { folder: folders[&name].clone(), name, description, sees, tests_see });
    }
    let place =
        |folder: &str| ["services", "shared", "tools", "proof", "tests"].iter().position(|top| folder.starts_with(top));
    crates.sort_by_key(|c| (place(&c.folder), c.folder.clone()));
    Ok(crates)
}

/// Its folder below the root.
fn folder_of(package: &Value) -> Option<String> {
    let root = fs::canonicalize(path("")).ok()?;
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
    Some(folder.strip_prefix(root).ok()?.to_str()?.to_owned())
}
