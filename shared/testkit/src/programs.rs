//! The paths of the programs that tests start: servers on this machine, and programs of this build.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The path of one of the workspace's own programs, built in the same profile as the running test.
pub fn bin(name: &str) -> anyhow::Result<PathBuf> {
    // A test is target/<profile>/deps/<name>-<hash>.
    let test = std::env::current_exe()?;
    let folder = test.parent().and_then(Path::parent).context("the test is not in a target folder")?;
    let path = folder.join(name);
    if !path.is_file() {
        bail!("{} is not built: cargo build --workspace --bins", path.display());
    }
    Ok(path)
}

/// promtool, which comes with prometheus: `PROMTOOL_BIN`, or the usual path, or where ./scripts/up unpacks it.
pub fn promtool() -> anyhow::Result<PathBuf> {
    program("PROMTOOL_BIN", "bin", &["promtool"])
}

/// The program that the variable names, or one of these names in `/usr/FOLDER`, on the search path, or where ./scripts/up
/// unpacks it.
pub(crate) fn program(variable: &str, folder: &str, names: &[&str]) -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let usual = [format!("/usr/{folder}").into(), "/usr/local/bin".into(), unpacked(&format!("usr/{folder}"))];
    let folders: Vec<PathBuf> = on_path().chain(usual).collect();
    let found = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|p| p.is_file());
    found.with_context(|| format!("found no {}: ./scripts/test gets one, or set {variable}", names[0]))
}

/// A folder of Debian's packages, as the scripts unpack them into the project's folder, at or above the current one.
fn unpacked(folder: &str) -> PathBuf {
    let tools = Path::new(".run/tools").join(folder);
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().map(|above| above.join(&tools)).find(|path| path.is_dir()).unwrap_or(tools)
}

/// The folder of PostgreSQL's programs: `POSTGRES_BIN_DIR`, or the usual paths, the newest version first.
pub(crate) fn postgres_folder() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("POSTGRES_BIN_DIR") {
        return Ok(path.into());
    }
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    versions.sort();
    let found = on_path()
        .chain(versions.into_iter().rev())
        .find(|folder| ["postgres", "initdb"].iter().all(|name| folder.join(name).is_file()));
    found.context("found no PostgreSQL: ./scripts/test installs one, or set POSTGRES_BIN_DIR")
}

fn on_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter()
}
