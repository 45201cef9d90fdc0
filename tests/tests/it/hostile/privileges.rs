//! The privileges of every database role, in full: equal to the checked-in matrix, so that no privilege appears unnoticed.

use std::fs;

use contracts::PARTICIPANTS;

use crate::prelude::*;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/privileges.txt");

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn every_role_has_the_privileges_of_the_matrix_only() -> Test {
    let suite = TestSuite::new().await?;
    let rows: Vec<String> = sqlx::query_scalar(include_str!("privileges.sql")).fetch_all(&suite.pool).await?;
    let found = rows.join("\n") + "\n";
    if std::env::var_os("REWRITE_GOLDEN").is_some() {
        fs::write(GOLDEN, &found)?;
    }
    let golden = fs::read_to_string(GOLDEN).with_context(|| format!("{GOLDEN}: REWRITE_GOLDEN=1 writes it"))?;
    let (golden, found): (Vec<_>, Vec<_>) = (golden.lines().collect(), found.lines().collect());
    let only = |left: &[&str], right: &[&str]| {
        left.iter().filter(|line| !right.contains(line)).map(|line| format!("  {line}\n")).collect::<String>()
    };
    let (more, less) = (only(&found, &golden), only(&golden, &found));
    ensure!(more.is_empty() && less.is_empty(), "unexpected:\n{more}missing:\n{less}REWRITE_GOLDEN=1 accepts this");
    ensure!(found == golden, "the lines have another order");
    Ok(())
}

/// Privileges that no later version of the matrix may contain.
#[test]
fn the_matrix_contains_no_forbidden_privilege() -> Test {
    let golden = fs::read_to_string(GOLDEN)?;
    for line in golden.lines() {
        let [role, kind, object, privileges] =
            line.split(" | ").collect::<Vec<_>>()[..].try_into().with_context(|| format!("{line:?} is no row"))?;
        let held: Vec<_> = privileges.split(' ').collect();
        let writes = ["INSERT", "UPDATE", "DELETE"].iter().any(|right| held.contains(right));
        ensure!(!held.iter().any(|right| ["TRUNCATE", "REFERENCES", "TRIGGER", "CREATE"].contains(right)), "{line}");
        ensure!(kind != "role", "a role of its own attributes or of a group: {line}");
        ensure!(!object.contains("_migration") || held == ["SELECT"], "{line}");
        ensure!(!(role == "auditor" && (writes || kind.starts_with("function of the owner"))), "{line}");
        let tokens = match kind {
            "table" => {
                ["customer_order", "payment", "outbox", "outbox_published", "outbox_action", "dead_letter"].as_slice()
            }
            _ => &["payment_method", "shipping_address", "method", "payload", "event"],
        };
        // The views of the schema `audit` leave them out.
        let reads_tokens = !object.starts_with("audit.")
            && tokens.contains(&object.rsplit('.').next().unwrap_or_default())
            && kind != "schema";
        ensure!(!(role == "auditor" && reads_tokens), "the auditor may read the tokens of cards: {line}");
        ensure!(!(role == "public" && kind != "database" && kind != "function" && object != "public"), "{line}");
        let Some(participant) = PARTICIPANTS.iter().find(|participant| participant.role() == role) else { continue };
        let own = &format!("{}.", participant.schema);
        let reads_or_writes = kind == "table" || kind == "column" || kind == "sequence";
        ensure!(!reads_or_writes || object.starts_with(own) || object.starts_with("saga."), "{line}");
        // Who coordinates a saga is a lease, and no fact about it.
        let is_lease = ["saga.coordination", "saga.coordinator"].contains(&object);
        ensure!(!(object.starts_with("saga.") && held.contains(&"DELETE")) || is_lease, "{line}");
    }
    Ok(())
}
