//! `console audit --watch` as a program: what it serves, and its verdicts on a suite at work.

use std::{process::Command, time::Duration};

use contracts::SERVICES;
use serde_json::{Value, json};
use testkit::{Process, eventually, free_port};

use crate::whole_audit::{World, payment};

/// Not the public one, with which only this machine is served.
pub(crate) const ADMIN_TOKEN: &str = "a-token-of-these-tests";

const LIMIT: Duration = Duration::from_secs(60);

/// A running `console audit --watch`.
pub(crate) struct Watch {
    process: Process,
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
}

impl Watch {
    pub(crate) fn start(world: &World) -> Self {
        Self::with_gateway(world, &world.gateway.base_url)
    }

    fn with_gateway(world: &World, gateway_url: &str) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_console"));
        command
            .args(["audit", "--watch", "--every", "100ms", "--listen", &address])
            .args(["--database-url", &world.database.url_for("auditor"), "--gateway-url", gateway_url])
            // No suite that runs beside the tests.
            .args(SERVICES.map(|service| format!("--{service}-url=http://127.0.0.1:1")))
            .env("ADMIN_TOKEN", ADMIN_TOKEN)
            .args(["--nats-url", &world.nats.url(), "--nats-user", "auditor", "--nats-password", "secret"]);
        let process = Process::start(&mut command).expect("the console starts");
        Watch { process, url: format!("http://{address}"), http: reqwest::Client::new() }
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Result<(u16, String)> {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    pub(crate) async fn until_ok(&self, path: &str) {
        let ok = eventually(LIMIT, async || self.get(path).await.is_ok_and(|(status, _)| status == 200));
        ok.await.expect(path);
    }

    async fn post(&self, notification: &Value) -> u16 {
        let request = self.http.post(format!("{}/alerts", self.url)).json(notification);
        request.send().await.expect("an answer").status().as_u16()
    }

    /// The value of a series, by its name and labels in the text format.
    async fn metric(&self, series: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await.ok()?;
        // A late gauge without labels has an empty label list.
        let value = |line: &str| line.strip_prefix(series)?.trim_start_matches("{}").strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value)
    }

    async fn violations(&self, invariant: &str) -> Option<f64> {
        self.metric(&format!("invariant_violations{{invariant=\"{invariant}\"}}")).await
    }

    /// Waits for these verdicts from an audit that began after this call.
    async fn expect_verdicts(&self, expected: &[(&str, f64)]) {
        let runs = self.metric("audit_runs_total").await.unwrap_or(0.0);
        let found = eventually(LIMIT, async || {
            anyhow::ensure!(self.metric("audit_runs_total").await >= Some(runs + 2.0), "no audit since");
            for (invariant, violations) in expected {
                let found = self.violations(invariant).await;
                anyhow::ensure!(found == Some(*violations), "{invariant}: {found:?} instead of {violations}");
            }
            Ok(())
        });
        if let Err(error) = found.await {
            panic!("{error:#}\n{}", self.process.log());
        }
    }
}

/// The sound suite; the deadline of its running saga is far away.
async fn world() -> World {
    let world = World::new().await;
    world.change("update saga.saga_instance set deadline = now() + interval '1 hour'").await;
    world
}

#[tokio::test]
async fn violations_are_counted_until_they_are_repaired() {
    let world = world().await;
    let watch = Watch::start(&world);
    watch.until_ok("/health/ready").await;
    assert_eq!(watch.get("/health/live").await.expect("an answer").0, 200);
    let sound = ["stock_conserved", "money_conserved", "order_agrees_with_saga", "gateway_charges", "journal_legal"];
    watch.expect_verdicts(&sound.map(|invariant| (invariant, 0.0))).await;
    for waits in ["dead_letters", "outbox_empty"] {
        assert_eq!(watch.violations(waits).await, None, "{waits} has an alert of its own");
    }
    for name in ["audit_duration_seconds", "audit_last_success_timestamp_seconds", "process_resident_memory_bytes"] {
        assert!(watch.metric(name).await > Some(0.0), "{name}: {}", watch.get("/metrics").await.expect("metrics").1);
    }
    let line = "where sku = 'DESK' and order_id::text like '%1'";
    world.change(&format!("update inventory.reservation_line set status = 'RELEASED' {line}")).await;
    watch
        .expect_verdicts(&[("stock_conserved", 1.0), ("order_agrees_with_reservation", 1.0), ("money_conserved", 0.0)])
        .await;
    world.change(&format!("update inventory.reservation_line set status = 'RESERVED' {line}")).await;
    watch.expect_verdicts(&[("stock_conserved", 0.0), ("order_agrees_with_reservation", 0.0)]).await;
}

#[tokio::test]
async fn a_failed_compensation_is_a_violation_a_running_one_is_not() {
    let world = world().await;
    let becomes = async |status: &str| {
        world
            .change(&format!(
                "update orders.customer_order set status = 'CANCELLED', cancel_reason = 'because' where order_id::text like '%5';
                 update saga.saga_instance set status = '{status}', compensation_deadline = now() + interval '1 hour',
                    completed_at = case when '{status}' = 'FAILED' then now() end
                 where saga_id::text like '%5';
                 update saga.saga_step set status_after = '{status}' where saga_id::text like '%5' and position = 2;"
            ))
            .await;
    };
    becomes("COMPENSATING").await;
    let watch = Watch::start(&world);
    let sound =
        ["nothing_held_on_cancelled", "order_agrees_with_payment", "order_agrees_with_reservation", "no_saga_stuck"];
    watch.expect_verdicts(&sound.map(|invariant| (invariant, 0.0))).await;
    becomes("FAILED").await;
    let violated = [("nothing_held_on_cancelled", 2.0), ("order_agrees_with_payment", 1.0), ("no_saga_stuck", 1.0)];
    watch.expect_verdicts(&violated).await;
}

#[tokio::test]
async fn the_gateway_s_totals_are_compared_while_a_saga_is_in_flight() {
    let world = world().await;
    world.charge(&payment(5), "USD").await;
    let watch = Watch::start(&world);
    watch.expect_verdicts(&[("gateway_totals", 0.0), ("gateway_charges", 0.0)]).await;
    world.charge("unknown", "USD").await;
    watch.expect_verdicts(&[("gateway_totals", 1.0), ("gateway_charges", 0.0)]).await;
}

#[tokio::test]
async fn a_suite_that_cannot_be_audited_has_no_verdicts() {
    let world = world().await;
    let watch = Watch::with_gateway(&world, "http://127.0.0.1:1");
    eventually(LIMIT, async || watch.metric("audit_failures_total").await > Some(1.0)).await.expect("it fails");
    assert_eq!(watch.get("/health/ready").await.expect("an answer").0, 503);
    assert_eq!(watch.metric("audit_runs_total").await, Some(0.0));
    let (_, metrics) = watch.get("/metrics").await.expect("metrics");
    assert!(!metrics.contains("invariant_violations{"), "{metrics}");
    assert!(watch.get("/").await.expect("the page").1.contains("cannot be audited now"));
}

fn notification(status: &str, name: &str) -> Value {
    json!({
        "version": "4", "groupKey": "{}", "status": status, "receiver": "console", "truncatedAlerts": 0,
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://alertmanager:9093",
        "alerts": [{
            "status": status, "fingerprint": name,
            "labels": {"alertname": name, "severity": "critical"},
            "annotations": {"summary": "<all> is wrong"},
            "startsAt": "2026-11-21T02:22:47.176121482Z",
            "endsAt": if status == "firing" { "0001-01-01T00:00:00Z" } else { "2026-11-21T02:23:47Z" },
            "generatorURL": "http://prometheus:9090/graph",
        }],
    })
}

#[tokio::test]
async fn alerts_are_received_listed_newest_first_and_shown() {
    let world = world().await;
    let watch = Watch::start(&world);
    watch.until_ok("/alerts").await;
    for (status, name) in [("firing", "ServiceDown"), ("firing", "OutboxStale"), ("resolved", "ServiceDown")] {
        assert_eq!(watch.post(&notification(status, name)).await, 204);
    }
    let mut other = notification("firing", "Late");
    other["version"] = json!("3");
    assert_eq!(watch.post(&other).await, 422);
    let (_, list) = watch.get("/alerts").await.expect("the list");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let listed: Vec<_> = list["items"].as_array().into_iter().flatten().map(|a| (&a["name"], &a["status"])).collect();
    assert_eq!(listed, [(&json!("ServiceDown"), &json!("resolved")), (&json!("OutboxStale"), &json!("firing"))]);
    assert_eq!(list["items"][0]["ends_at"], "2026-11-21T02:23:47Z");
    assert_eq!(list["items"][1]["ends_at"], Value::Null);
    assert_eq!(watch.metric("alerts_received_total{status=\"firing\"}").await, Some(2.0));
    let (_, page) = watch.get("/").await.expect("the page");
    assert!(page.contains("/runbook#OutboxStale") && page.contains("&lt;all&gt; is wrong"), "{page}");
    let (_, runbook) = watch.get("/runbook").await.expect("the runbook");
    assert!(runbook.contains("<a id=\"OutboxStale\">"), "{runbook}");
}
