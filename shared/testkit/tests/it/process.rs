use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Process, Signal, eventually};

const LIMIT: Duration = Duration::from_secs(10);

fn sleeper() -> Process {
    Process::start(Command::new("sh").args(["-c", "echo started; exec sleep 60"])).unwrap()
}

fn runs(id: u32) -> bool {
    // A process that has ended and is not yet reaped counts as gone.
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_process_stops_on_request_and_keeps_its_log() {
    let mut process = sleeper();
    process.ready(LIMIT, async || true).await.unwrap();
    eventually(LIMIT, async || process.log() == "started\n").await.unwrap();
    process.stop(Signal::Term, LIMIT).await.unwrap();
    assert!(!process.is_running());
    assert_eq!(process.log(), "started\n");
}

#[tokio::test]
async fn an_early_end_is_reported_with_the_last_lines_of_the_log() {
    let mut process = Process::start(Command::new("sh").args(["-c", "echo no such setting; exit 3"])).unwrap();
    let error = process.ready(LIMIT, async || false).await.unwrap_err().to_string();
    assert!(error.contains("no such setting"), "{error}");
}

#[test]
fn a_dropped_process_is_gone() {
    let process = sleeper();
    let id = process.id();
    assert!(runs(id));
    drop(process);
    assert!(!runs(id));
}

/// Run by the next test in its own process, which is then killed.
#[test]
#[ignore = "only the next test runs it"]
fn hold_a_process() {
    let process = sleeper();
    std::fs::write(std::env::var("HOLD_FILE").unwrap(), process.id().to_string()).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[tokio::test]
async fn a_process_ends_with_a_test_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("id");
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "process::hold_a_process"])
        .env("HOLD_FILE", &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let id = eventually(LIMIT, async || read_id(&file)).await.unwrap();
    test.kill().unwrap();
    test.wait().unwrap();
    eventually(LIMIT, async || !runs(id)).await.unwrap();
}

fn read_id(file: &Path) -> Option<u32> {
    std::fs::read_to_string(file).ok()?.parse().ok()
}
