//! The repository's own files, for tests about their contents. Paths start at its root.

use std::{fs, path::PathBuf};

use contracts::SERVICES;

use crate::prelude::*;

/// Products of builds and runs, and git's own files.
const NONE_OF_OURS: [&str; 5] = [".git", ".run", "target", "node_modules", "dist"];

pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(file)
}

pub(crate) fn read(file: &str) -> anyhow::Result<String> {
    fs::read_to_string(path(file)).with_context(|| format!("{file} cannot be read"))
}

/// Every file below a folder whose name ends like this, sorted by name.
pub(crate) fn files(folder: &str, ending: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path(folder)).with_context(|| format!("{folder} cannot be read"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let file = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() {
            if !NONE_OF_OURS.contains(&name.as_str()) {
                found.extend(files(&file, ending)?);
            }
        } else if name.ends_with(ending) {
            found.push(file);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The sources of all services, with their texts.
pub(crate) fn services() -> anyhow::Result<Vec<(String, String)>> {
    let mut sources = Vec::new();
    for service in SERVICES {
        for file in files(&format!("services/{service}/src"), ".rs")? {
            sources.push((file.clone(), read(&file)?));
        }
    }
    Ok(sources)
}
