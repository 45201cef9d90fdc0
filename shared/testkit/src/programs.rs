//! Where the programs are that tests start: the servers on this machine, and the services of this build.

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

/// nats-server: `NATS_SERVER_BIN`, or where it usually is, or where ./scripts/up unpacks it.
pub(crate) fn nats_server() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("NATS_SERVER_BIN") {
        return Ok(path.into());
    }
    let folders = on_path().chain(["/usr/sbin".into(), "/usr/local/bin".into(), unpacked("usr/sbin")]);
    let found = folders.map(|folder| folder.join("nats-server")).find(|path| path.is_file());
    found.context("found no nats-server: ./scripts/test gets one, or set NATS_SERVER_BIN")
}

/// prometheus: `PROMETHEUS_BIN`, or where it usually is, or where ./scripts/up unpacks it.
pub(crate) fn prometheus() -> anyhow::Result<PathBuf> {
    monitor("PROMETHEUS_BIN", &["prometheus"])
}

/// alertmanager, which Debian calls prometheus-alertmanager: `ALERTMANAGER_BIN`, or likewise.
pub(crate) fn alertmanager() -> anyhow::Result<PathBuf> {
    monitor("ALERTMANAGER_BIN", &["prometheus-alertmanager", "alertmanager"])
}

/// promtool, which comes with prometheus: `PROMTOOL_BIN`, or likewise.
pub fn promtool() -> anyhow::Result<PathBuf> {
    monitor("PROMTOOL_BIN", &["promtool"])
}

fn monitor(variable: &str, names: &[&str]) -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let folders: Vec<PathBuf> =
        on_path().chain(["/usr/bin".into(), "/usr/local/bin".into(), unpacked("usr/bin")]).collect();
    let found = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|p| p.is_file());
    found.with_context(|| format!("found no {}: ./scripts/test gets one, or set {variable}", names[0]))
}

/// A folder of Debian's packages, as the scripts unpack them into the project's folder, at or above the current one.
fn unpacked(folder: &str) -> PathBuf {
    let tools = Path::new(".run/tools").join(folder);
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().map(|above| above.join(&tools)).find(|path| path.is_dir()).unwrap_or(tools)
}

/// The folder of PostgreSQL's programs: `POSTGRES_BIN_DIR`, or where they usually are, the newest version first.
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
