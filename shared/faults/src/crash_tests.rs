//! A crash fault aborts the process, so each test runs in a child process of this binary, whose environment names the point.

#![allow(clippy::disallowed_methods, reason = "the environment marks a child process")]

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
    sync::Arc,
};

use crate::{FaultPoint, FaultSpec, Faults, Kind, Pass, Subject};

const CHILD: &str = "FAULTS_TEST_CRASH_AT";
const SIGABRT: i32 = 6;

#[tokio::test]
async fn a_crash_aborts_at_every_point_after_its_hit_is_recorded() {
    if let Ok(point) = env::var(CHILD) {
        return die_at(point.parse().expect("a point")).await;
    }
    for point in FaultPoint::ALL {
        let Output { status, stdout, .. } = child(point);
        let stdout = String::from_utf8_lossy(&stdout);
        assert_eq!(status.signal(), Some(SIGABRT), "{point:?}: {status}, {stdout}");
        let said: Vec<&str> = stdout.lines().filter(|line| line.starts_with("pass ")).collect();
        assert_eq!(said, ["pass 1 spared", &format!("pass 2 hit by a crash at {}", point.as_str())], "{stdout}");
    }
}

fn child(point: FaultPoint) -> Output {
    let test = "crash_tests::a_crash_aborts_at_every_point_after_its_hit_is_recorded";
    let mut command = Command::new(env::current_exe().expect("this binary"));
    command.args(["--exact", test, "--nocapture"]).env(CHILD, point.as_str()).output().expect("a child")
}

async fn die_at(point: FaultPoint) {
    let faults = Faults::armable();
    faults.on_hit(Arc::new(|hit| {
        Box::pin(async move { println!("\npass 2 hit by a {} at {}", hit.kind.as_str(), hit.point.as_str()) })
    }));
    faults.arm(FaultSpec::new(point, Kind::Crash).skip(1).first(1), "test").expect("armed");
    assert_eq!(faults.at(point, Subject::default).await, Ok(Pass::Unharmed));
    println!("\npass 1 spared");
    let survived = faults.at(point, Subject::default).await;
    println!("\npass 2 survived: {survived:?}");
}
