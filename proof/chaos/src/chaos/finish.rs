//! The verdict at the end of a run.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use console::audit;

use super::Plan;
use crate::{
    conservation::Conservation,
    excuse::{self, Cancelled, is_disturbed},
    nemesis::{self, Kind},
    recovery::{Flow, Struck},
    report::Report,
    verdict::{self, Violations},
    workload::Run,
};

/// The observations of a run.
pub(super) struct Evidence {
    pub(super) struck: Vec<Struck>,
    pub(super) conservation: Conservation,
    /// None when it could not be made.
    pub(super) audit: Option<audit::Report>,
    /// Why the suite did not recover, or could not be audited.
    pub(super) unwell: Vec<String>,
    pub(super) settled: Duration,
    pub(super) ended_ms: u64,
    pub(super) unplanned_ends: Vec<String>,
}

pub(super) async fn judge(run: &Run, plan: &Plan, evidence: Evidence) -> anyhow::Result<Report> {
    let records = run.history.records();
    let orders = verdict::ended_orders(&run.testbed.pool).await?;
    let dead_letters = verdict::unexpected_dead_letters(&run.testbed.pool).await?;
    let mut findings = Violations { dead_letters, ..verdict::compare(&records, &orders) };
    let flow = Flow::new(&records, &orders, run.history.epoch_ms());
    let audit = evidence.audit.as_ref().map(verdict::violations).unwrap_or_default();
    let struck = evidence.struck;
    let nemeses: BTreeSet<&str> = struck.iter().filter(|phase| phase.faults > 0).map(|phase| phase.nemesis).collect();
    let quiet = flow.latency(|due| !is_disturbed(&struck, due, due + 1_000));
    let cancelled: Vec<Cancelled> = verdict::cancelled_without_cause(&records, &orders)
        .into_iter()
        .map(|(order, due_ms)| Cancelled::new(order, due_ms, &struck, run.history.epoch_ms()))
        .collect();
    findings.broken_promises.extend(cancelled.iter().filter(|order| !order.is_excused()).map(|order| {
        let Cancelled { order_id, at, well_ms, during, .. } = order;
        format!(
            "order {order_id} had to be confirmed and was cancelled at {at} after {well_ms} ms without an outage on its path: \
             {during:?}"
        )
    }));
    let undisturbed = excuse::undisturbed(&records, &orders, &struck, run.history.epoch_ms());
    findings.broken_promises.extend(undisturbed.iter().filter(|order| order.status != "CONFIRMED").map(|order| {
        let at = order.failed_at_step.as_deref().unwrap_or("no step");
        format!(
            "orchestrated order {} had to be confirmed, and is {} at {at} without any outage",
            order.order_id, order.status
        )
    }));
    let audited = |names: &[&str]| violations_of(evidence.audit.as_ref(), names);
    let doubled =
        findings.doubled.len() as u64 + audited(&["one_charge_per_order", "gateway_charges", "steps_taken_once"]);
    let drift = evidence.conservation.violations.len() as u64
        + audited(&["stock_conserved", "money_conserved", "order_total", "order_terminal", "gateway_totals"]);
    let kinds = nemesis::kinds().into_iter().filter(|kind| struck.iter().any(|phase| phase.kind == *kind));
    Ok(Report {
        seed: plan.seed,
        seconds: plan.length.as_secs(),
        rate: plan.rate,
        demands: plan.demands,
        orders: records.len(),
        acknowledged: records.iter().filter(|record| !record.acknowledged.is_empty()).count(),
        requests: records.iter().map(|record| u64::from(record.requests)).sum(),
        faults: run.tally.faults.load(Ordering::Relaxed),
        nemeses: nemeses.len(),
        lost: findings.lost.len(),
        doubled,
        drift,
        outcomes: verdict::outcomes(&orders),
        has_to_be_confirmed: records.iter().filter(|record| record.has_to_be_confirmed).count(),
        cancelled_by_outages: cancelled,
        orchestrated: records.iter().filter(|record| record.has_to_be_confirmed_if_undisturbed).count(),
        undisturbed: undisturbed.len(),
        kinds: kinds.map(|kind| flow.report(kind, &struck, evidence.ended_ms)).collect(),
        goodput_after_burst_percent: after_bursts(&flow, &struck, evidence.ended_ms),
        phases: struck,
        findings,
        conservation: evidence.conservation,
        audit,
        unwell: evidence.unwell,
        settled_seconds: evidence.settled.as_secs(),
        quiet,
        unplanned_ends: evidence.unplanned_ends,
    })
}

/// The number of violations of these invariants in the audit.
fn violations_of(report: Option<&audit::Report>, names: &[&str]) -> u64 {
    let verdicts = report.iter().flat_map(|report| &report.invariants);
    verdicts.filter(|verdict| names.contains(&verdict.name)).map(|verdict| verdict.violations).sum()
}

/// Goodput over 5 s, half a minute after each burst, in percent of that over 5 s before it.
fn after_bursts(flow: &Flow, struck: &[Struck], ended_ms: u64) -> Vec<f64> {
    let bursts = struck.iter().filter(|phase| phase.kind == Kind::Burst && phase.healed_ms + 32_500 <= ended_ms);
    bursts
        .filter_map(|burst| {
            let before = flow.goodput(burst.start_ms.saturating_sub(5_000), burst.start_ms)?;
            let after = flow.goodput(burst.healed_ms + 27_500, burst.healed_ms + 32_500)?;
            // Above 1 the suite was still catching up after the previous phase.
            (before > 0.0).then(|| 100.0 * after / before.min(1.0))
        })
        .collect()
}
