//! A fourth participant, as in docs/tutorial.md: the page's blocks are applied to a copy of the sources, which is built, ships
//! orders, is crashed at every fault point of the new step, and is audited.

use std::path::Path;

use tokio::process::Command;

use crate::prelude::*;

/// The new service's own tests, which the last command of the page runs.
const SHOWN: [&str; 3] = [
    "a_confirmed_order_is_shipped_and_cannot_be_cancelled_any_more",
    "an_order_that_is_confirmed_while_shipping_is_away_is_shipped_later",
    "a_crash_at_any_point_of_the_step_loses_and_doubles_no_parcel",
];

#[tokio::test]
async fn the_tutorial_yields_a_suite_that_ships() -> Test {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tutorial");
    let ended = Command::new(script).arg("--prove").output().await?;
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    ensure!(ended.status.success(), "{said}");
    for name in SHOWN {
        let passed = |line: &str| line.contains(name) && (line.contains("PASS") || line.ends_with("ok"));
        ensure!(said.lines().any(passed), "{name} was not run:\n{said}");
    }
    Ok(())
}
