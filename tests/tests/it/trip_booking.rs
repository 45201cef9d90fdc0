//! A saga unrelated to the suite, built from the packaged libraries.

use std::path::Path;

use tokio::process::Command;

use crate::prelude::*;

#[tokio::test]
async fn a_third_party_saga_survives_crashes_at_every_point() -> Test {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/trip_booking/run");
    let ended = Command::new(run).output().await?;
    let (out, error) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    ensure!(ended.status.success(), "{out}{error}");
    ensure!(out.matches("audit clean").count() == 7, "{out}{error}");
    Ok(())
}
