//! Everything happens once, and every metric is checked.

use testkit::Process;

use super::{
    Shown, document,
    scenario::{self, PRICE, TRACE},
};
use crate::prelude::*;

#[suite_tests::test(unaudited = "sagas are changed by hand, and dead letters left")]
async fn metrics_md_lists_every_metric_each_counted_once() -> Test {
    let (suite, _receiver) = scenario::suite().await?;
    let participants = suite.participants_with_faults().await?;
    participants.sell("A", PRICE, 500).await?;
    let first = scenario::ends_by_themselves(&participants).await?;
    participants.time_out(&suite, scenario::place(&participants, 1, "tok_visa")).await?;
    scenario::gets_stuck(&suite, &participants, &first).await?;
    scenario::opens_the_breaker(&suite, &participants).await?;
    wait_until_quiescent(&suite, &participants).await?;
    suite.publish_all_again(INVENTORY).await?;
    repeats_are_recognised(&participants).await?;
    scenario::leaves_dead_letters(&suite, &participants).await?;
    wait_until_quiescent(&suite, &participants).await?;
    let mut shown = Shown::by(&participants).await?;
    sagas(&shown)?;
    business(&shown)?;
    deliveries(&shown)?;
    exemplars(&shown)?;
    let orchestrated = order_of(&[("A", 1)], "tok_visa");
    participants.order.client.post("/api/orders/orchestrated", &orchestrated).await?.expect(201)?;
    shown = Shown::by(&participants).await?;
    let (console, _process) = console(&suite).await?;
    shown.add("console", &console).await?;
    shown.add("gateway_simulator", &suite.gateway_client()).await?;
    plausible(&shown)?;
    document::compare(&shown)
}

/// Waits until nothing is in flight: every event is published, and processed or a dead letter; and every relay has its lease.
async fn wait_until_quiescent(suite: &TestSuite, participants: &Participants) -> Test {
    eventually(async || {
        let shown = Shown::by(participants).await?;
        let written = shown.sum("outbox_written_total", &[])?;
        let rows = suite.number("select count(*) from audit.outbox_published").await?;
        let applied = shown.sum("inbox_applied_total", &[])?;
        let claimed = suite.number("select count(*) from audit.inbox").await?;
        ensure!(written == rows as f64, "{written} events were written and {rows} published");
        ensure!(applied == claimed as f64, "{applied} events were counted as applied, of {claimed}");
        shown.expect(&[
            ("outbox_published_total", &[], written),
            ("outbox_age_at_publish_seconds_count", &[], written),
            ("outbox_pending", &[], 0.0),
            ("consumer_pending", &[], 0.0),
            ("consumer_ack_pending", &[], 0.0),
            ("relay_active", &[], 3.0),
            ("relay_lease_held", &[], 3.0),
            ("broker_connected", &[], 3.0),
            ("saga_active", &[], 0.0),
            ("compensation_debt_money_minor_units", &[], 0.0),
            ("compensation_debt_stock_units", &[], 0.0),
            ("compensation_debt_oldest_age_seconds", &[], 0.0),
            ("delivery_attempts_waiting", &[], 0.0),
            ("dead_letters_pending", &[], 0.0),
        ])
    })
    .await
}

/// Payment has received eleven reservations from inventory, and order one product and one refusal.
async fn repeats_are_recognised(participants: &Participants) -> Test {
    eventually(async || {
        Shown::by(participants).await?.expect(&[
            ("inbox_duplicates_total", &[("step", "process_payment")], 11.0),
            ("inbox_duplicates_total", &[("step", "project_product_created")], 1.0),
            ("inbox_duplicates_total", &[("step", "cancel_unfillable_order")], 1.0),
        ])
    })
    .await
}

fn sagas(shown: &Shown) -> Test {
    shown.expect(&[
        ("saga_started_total", &[("saga_type", "OrderFulfillment")], 12.0),
        ("saga_completed_total", &[], 9.0),
        ("saga_compensations_started_total", &[], 4.0),
        ("saga_compensated_total", &[], 4.0),
        ("saga_compensated_total", &[("reason", "reserve_stock")], 1.0),
        ("saga_compensated_total", &[("reason", "process_payment")], 1.0),
        ("saga_compensated_total", &[("reason", "detect_timeout")], 1.0),
        ("saga_compensated_total", &[("reason", "cancel_order_on_request")], 1.0),
        ("saga_timed_out_total", &[], 1.0),
        ("saga_failed_total", &[], 1.0),
        ("saga_resumed_total", &[], 1.0),
        ("saga_duration_seconds_count", &[("outcome", "completed")], 9.0),
        // The fourth had been completed before.
        ("saga_duration_seconds_count", &[("outcome", "compensated")], 3.0),
        ("saga_compensation_duration_seconds_count", &[], 4.0),
        ("saga_steps_total", &[("step", "create_order"), ("status", "COMPLETED")], 12.0),
        ("saga_steps_total", &[("step", "reserve_stock"), ("status", "COMPLETED")], 11.0),
        ("saga_steps_total", &[("step", "reserve_stock"), ("status", "FAILED")], 1.0),
        ("saga_steps_total", &[("step", "process_payment"), ("status", "COMPLETED")], 9.0),
        ("saga_steps_total", &[("step", "process_payment"), ("status", "FAILED")], 1.0),
        ("saga_steps_total", &[("step", "process_payment"), ("status", "SKIPPED")], 1.0),
        ("saga_steps_total", &[("step", "confirm_order"), ("status", "COMPLETED")], 9.0),
        // The resumed one is confirmed twice by each participant.
        ("saga_steps_total", &[("step", "release_stock"), ("status", "COMPENSATED")], 5.0),
        ("saga_steps_total", &[("step", "refund_payment"), ("status", "COMPENSATED")], 5.0),
    ])
}

fn business(shown: &Shown) -> Test {
    shown.expect(&[
        ("orders_accepted_total", &[], 12.0),
        ("orders_confirmed_total", &[], 9.0),
        ("orders_cancelled_total", &[("reason", "out_of_stock")], 1.0),
        ("orders_cancelled_total", &[("reason", "payment_refused")], 1.0),
        ("orders_cancelled_total", &[("reason", "timed_out")], 1.0),
        ("orders_cancelled_total", &[("reason", "customer_request")], 1.0),
        ("revenue_minor_units_total", &[("currency", "USD")], (9 * PRICE) as f64),
        ("payments_declined_total", &[("code", "card_declined")], 1.0),
        ("stock_refusals_total", &[], 1.0),
        ("inventory_products", &[], 1.0),
        ("inventory_stock_units", &[("sku", "A"), ("state", "reserved")], 8.0),
        ("inventory_stock_units", &[("sku", "A"), ("state", "available")], 492.0),
    ])
}

fn deliveries(shown: &Shown) -> Test {
    let [step, paid] = ["project_product_created", "process_payment"].map(|step| ("step", step));
    shown.expect(&[
        ("refusals_total", &[("step", "reserve_stock")], 1.0),
        ("refusals_total", &[paid], 1.0),
        ("step_failures_total", &[step], 4.0),
        ("step_retries_total", &[step, ("outcome", "retried")], 2.0),
        ("step_retries_total", &[step, ("outcome", "exhausted")], 2.0),
        ("dead_letters_total", &[step], 2.0),
        ("dead_letter_actions_total", &[step, ("action", "dry_run"), ("outcome", "would_fail")], 2.0),
        ("dead_letter_actions_total", &[step, ("action", "dry_run"), ("outcome", "would_apply")], 2.0),
        ("dead_letter_actions_total", &[step, ("action", "replay"), ("outcome", "resolved")], 1.0),
        ("dead_letter_actions_total", &[step, ("action", "discard"), ("outcome", "resolved")], 1.0),
        ("hop_seconds_count", &[("step", "confirm_order"), ("hop", "committed_to_committed")], 9.0),
        ("hop_seconds_count", &[("step", "reserve_stock"), ("hop", "published_to_delivered")], 12.0),
        ("faults_injected_total", &[("point", "in_step"), ("kind", "latency")], 1.0),
    ])?;
    let unknown = shown.sum("gateway_calls_total", &[("ask", "charge"), ("outcome", "unknown")])?;
    let opened = shown.sum("circuit_breaker_opened_total", &[paid])?;
    let retried = shown.sum("step_retries_total", &[paid, ("outcome", "retried")])?;
    // Both cancellations of one batch trigger it.
    let refunded = shown.sum("gateway_calls_total", &[("ask", "refund"), ("outcome", "answered")])?;
    // The breaker opens at the third failure of five calls, or later.
    let counted = [(unknown, 3.0), (opened, 1.0), (retried, 3.0), (refunded, 1.0)];
    ensure!(counted.iter().all(|(found, least)| found >= least), "too few of {counted:?}");
    Ok(())
}

/// Every histogram of seconds on an order's path has an exemplar with its trace, except those of batches and hops.
fn exemplars(shown: &Shown) -> Test {
    for (job, name) in [
        ("order", "http_server_request_duration_seconds_bucket"),
        ("order", "saga_duration_seconds_bucket"),
        ("order", "step_duration_seconds_bucket"),
        ("order", "outbox_age_at_publish_seconds_bucket"),
        ("payment", "gateway_call_duration_seconds_bucket"),
    ] {
        let (_, scrape) = shown.0.iter().find(|(j, _)| *j == job).context("not scraped")?;
        let traced = scrape.samples(name, &[]).any(|sample| sample.trace_id.as_deref() == Some(TRACE));
        ensure!(traced, "{name} of {job} does not lead to the order's trace");
    }
    Ok(())
}

/// An auditor, after its first audit.
async fn console(suite: &TestSuite) -> anyhow::Result<(Client, Process)> {
    let (client, process) = Running::auditor(suite, "100ms")?;
    let looked = async || Scrape::of(&client).await.is_ok_and(|s| s.sum("audit_runs_total", &[]) >= Some(1.0));
    eventually(looked).await.with_context(|| process.log())?;
    Ok((client, process))
}

/// Every metric has a value, is a number, and does not decrease if it is a counter.
fn plausible(shown: &Shown) -> Test {
    for (job, scrape) in &shown.0 {
        for (name, family) in &scrape.families {
            for sample in &family.samples {
                let value = sample.value;
                ensure!(value.is_finite() && value >= 0.0, "{job} shows {sample:?}");
            }
            let ratio = !name.ends_with("_ratio") || family.samples.iter().all(|s| s.value <= 1.0);
            ensure!(ratio, "{job} shows {family:?}");
        }
        for (name, least, most) in [
            ("build_info", 1.0, 1.0),
            ("process_resident_memory_bytes", 1e6, 1e11),
            ("process_cpu_seconds_total", 0.001, 1e6),
        ] {
            let found = scrape.sum(name, &[]).with_context(|| format!("{job} does not show {name}"))?;
            ensure!((least..=most).contains(&found), "{job} shows {found} as {name}");
        }
    }
    for name in ["postgres_database_bytes", "broker_stream_bytes", "broker_stream_max_bytes", "postgres_connections"] {
        ensure!(shown.sum(name, &[])? >= 1.0, "{name} is 0");
    }
    ensure!(shown.of("payment", "circuit_breaker_state", &[("step", "process_payment")])? <= 2.0);
    let console = shown.0.iter().find(|(job, _)| *job == "console").map(|(_, scrape)| scrape);
    let audited = console.and_then(|console| console.families.get("invariant_violations"));
    // The products that became dead letters were forged.
    let forged = [("invariant", "stream_only_committed")];
    let forged = forged.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let samples = &audited.context("no audit was made")?.samples;
    let violated: Vec<_> = samples.iter().filter(|s| s.value > 0.0 && s.labels != forged).map(|s| &s.labels).collect();
    ensure!(violated.is_empty(), "violated: {violated:?}");
    Ok(())
}
