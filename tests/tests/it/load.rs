//! `./scripts/load --ambient`: the background load of a demonstration.

use testkit::bin;

use crate::{mcp::addresses, prelude::*};

#[suite_tests::test]
async fn ambient_load_reads_and_has_new_customers_and_no_failure() -> Test {
    const ORDERS: i64 = 150;
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    let mut load = tokio::process::Command::new(bin("console")?);
    load.args(["load", "--ambient", "--orders", &ORDERS.to_string(), "--rate", "30", "--seed", "7", "--json"])
        .args(["--database-url", &suite.database.url_for("auditor"), "--gateway-url", &suite.gateway.base_url])
        .args(addresses(&participants));
    let ended = load.kill_on_drop(true).output().await?;
    ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let report: Value = serde_json::from_slice(&ended.stdout)?;
    ensure!(report["orders"] == ORDERS && report["defects"] == json!([]), "{report:#}");
    ensure!(report["failed_reads"] == json!([]), "{report:#}");
    ensure!(suite.number(CONFIRMED).await? > ORDERS * 4 / 5, "few orders fail: {report:#}");
    // The seed fixes both shares.
    let share = |of: i64, all: i64| of as f64 / all as f64;
    let reads = report["reads"]["count"].as_i64().context("no reads")?;
    ensure!((0.30..0.40).contains(&share(reads, reads + ORDERS)), "{reads} reads beside {ORDERS} orders");
    let newcomers = "select count(*) from orders.customer_order where customer_id like 'newcomer-%'";
    let newcomers = suite.number(newcomers).await?;
    ensure!((0.02..0.08).contains(&share(newcomers, ORDERS)), "{newcomers} new customers");
    suite.audit().await
}
