//! Retries: how often they helped, and how they are switched off.

use contracts::order_fulfillment::RESERVE_STOCK;
use tempfile::NamedTempFile;
use tracing_subscriber::{filter::LevelFilter, util::SubscriberInitExt as _};

use crate::{prelude::*, relay::create_products, sources::read};

async fn shown(replica: &Replica, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<f64> {
    let scrape = Scrape::of(&replica.client).await?;
    scrape.sum(name, labels).with_context(|| format!("{name} {labels:?} is not shown"))
}

const STEP: (&str, &str) = ("step", "reserve_stock");

/// What this thread logs, until the second one is dropped.
fn log() -> anyhow::Result<(NamedTempFile, impl Sized)> {
    let file = NamedTempFile::new()?;
    let subscriber = tracing_subscriber::fmt().with_writer(file.reopen()?).with_ansi(false);
    let logging = subscriber.with_max_level(LevelFilter::INFO).finish().set_default();
    Ok((file, logging))
}

/// Waits until the log has lines with this text, and returns them.
async fn logged(log: &NamedTempFile, text: &str) -> anyhow::Result<Vec<String>> {
    eventually(async || {
        let log = std::fs::read_to_string(log.path())?;
        let lines: Vec<String> = log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect();
        anyhow::Ok(Some(lines).filter(|lines| !lines.is_empty()))
    })
    .await
}

#[suite_tests::test]
async fn a_retry_that_helped_is_logged_with_the_number_of_attempts() -> Test {
    let (log, _logging) = log()?;
    let tuning = Tuning { resilience: "reserve_stock.initial=10ms", ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    participants.confirmed(&[("A", 1)]).await?;
    let fails = json!({"point": "in_step", "kind": "error", "first": 2, "scope": {"step": "reserve_stock"}});
    participants.inventory.arm(&fails).await?;
    let helped = participants.confirmed(&[("A", 1)]).await?;
    let lines = logged(&log, "succeeded after").await?;
    let saga_id = helped["saga_id"].as_str().context("an order without a saga")?;
    let is_of_it = |line: &String| line.contains("succeeded after 3 attempts") && line.contains(saga_id);
    ensure!(lines.len() == 1 && lines.iter().all(is_of_it), "{lines:#?}");
    suite.audit().await
}

#[suite_tests::test]
async fn an_event_applied_after_failed_attempts_counts_as_helped() -> Test {
    let resilience =
        "reserve_stock.attempts=1000,reserve_stock.initial=10ms,reserve_stock.max=50ms,reserve_stock.window=1000";
    let (suite, participants) = TestSuite::selling_with(Tuning { resilience, ..Tuning::default() }, 100, 10).await?;
    participants.confirmed(&[("A", 1)]).await?;
    suite.forbid("inventory.reservation", "false").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let failed = "select count(*) from inventory.delivery_attempt where attempts > 1";
    suite.becomes(failed, 1).await?;
    let helped = async || shown(&participants.inventory, "step_retries_helped_total", &[STEP]).await;
    ensure!(helped().await? == 0.0, "nothing has helped yet");
    suite.allow("inventory.reservation").await?;
    participants.saga_becomes(&placed, "COMPLETED").await?;
    eventually(async || helped().await.is_ok_and(|helped| helped == 1.0)).await?;
    participants.confirmed(&[("A", 1)]).await?;
    suite.publish_all_again(ORDER).await?;
    let duplicates = async || shown(&participants.inventory, "inbox_duplicates_total", &[STEP]).await;
    eventually(async || duplicates().await.is_ok_and(|duplicates| duplicates >= 3.0)).await?;
    ensure!(helped().await? == 1.0, "only what had failed was helped, and once");
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_event_published_after_refusals_counts_as_helped() -> Test {
    let (log, _logging) = log()?;
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    create_products(&inventory, 0..1).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    create_products(&inventory, 1..3).await?;
    // As the relay does after a refusal.
    let refused = "update inventory.outbox set attempts = 2, last_error = 'too large', next_attempt_at = now()
        where payload::text like '%P-1%'";
    ensure!(suite.execute(refused).await? == 1);
    inventory.client.act("/api/admin/relay/resume").await?;
    suite.becomes("select count(*) from inventory.outbox_published", 3).await?;
    let helped = async || shown(&inventory, "outbox_retries_helped_total", &[]).await;
    eventually(async || helped().await.is_ok_and(|helped| helped == 1.0)).await?;
    let lines = logged(&log, "published after").await?;
    ensure!(lines.len() == 1 && lines[0].contains("published after 3 attempts"), "{lines:#?}");
    Ok(())
}

#[suite_tests::test]
async fn without_retries_the_first_failure_is_a_dead_letter() -> Test {
    let resilience = "reserve_stock.attempts=1000";
    let tuning = Tuning { retries_enabled: false, resilience, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    suite.forbid("inventory.reservation", "false").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let inventory = &participants.inventory;
    let letter = inventory.client.until_items("/api/admin/dlq?step=reserve_stock", 1).await?.remove(0);
    ensure!(letter["attempts"] == 1 && letter["saga_id"] == placed["saga_id"], "{letter:#}");
    let retried = shown(inventory, "step_retries_total", &[STEP, ("outcome", "retried")]).await?;
    ensure!(retried == 0.0, "{retried} retries");
    suite.allow("inventory.reservation").await?;
    let replay = format!("/api/admin/dlq/{}/replay", letter["id"].as_str().unwrap_or_default());
    inventory.client.post(&replay, &json!({"reason": "a test"})).await?.expect(200)?;
    participants.saga_becomes(&placed, "COMPLETED").await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_service_takes_the_documented_override() -> Test {
    let page = read("docs/saga.md")?;
    let example = page.split("RESILIENCE='").nth(1).and_then(|rest| rest.split('\'').next()).context("no example")?;
    let example = example.replace(['\\', '\n', ' '], "");
    ensure!(example.split(',').all(|setting| setting.starts_with("reserve_stock.")), "{example}");
    let tuning = Tuning { resilience: Box::leak(example.into_boxed_str()), ..Tuning::default() };
    let (_suite, inventory) = TestSuite::alone_with(tuning, INVENTORY).await?;
    let step = &RESERVE_STOCK.step;
    let policy = inventory.app.participant().policy(step);
    ensure!(policy.retry.attempts != step.retry.attempts && policy.retry.initial != step.retry.initial, "{policy:?}");
    ensure!(policy.retry.multiplier != step.retry.multiplier && policy.breaker != step.breaker, "{policy:?}");
    Ok(())
}
