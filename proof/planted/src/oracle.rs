//! The oracles that detect a mistake: the audit, the clients' expectations, and the journal of the breakers.

use std::time::Duration;

use chaos::Testbed;
use console::audit::{Options, Verdict, audit};
use serde::Serialize;
use uuid::Uuid;

use crate::experiment::Experiment;

/// The name of the clients' oracle.
pub const GOOD_ORDERS: &str = "good_orders_are_confirmed";
/// The name of the oracle that reads the journal of the breakers.
pub const BREAKERS: &str = "no_breaker_opens_for_nothing";

/// Violations that one oracle has detected.
#[derive(Debug, Clone, Serialize)]
pub struct Detection {
    /// An invariant of the audit, or one of the oracles here.
    pub oracle: String,
    pub count: u64,
    pub example: String,
}

/// The violations of an audit while work is in flight.
pub async fn at_work(testbed: &Testbed) -> anyhow::Result<Vec<Detection>> {
    let options = Options { at_work: true, ..Options::default() };
    Ok(violated(&audit(&testbed.stores(), &testbed.gateway_url, &options).await?.invariants))
}

/// Waits until nothing is in flight, and consults all oracles.
pub async fn at_rest(experiment: &Experiment, settle: Duration) -> anyhow::Result<Vec<Detection>> {
    let report = experiment.testbed.audit(Options { settle, ..Default::default() }).await?;
    let mut findings = violated(&report.invariants);
    findings.extend(unconfirmed(experiment).await?);
    findings.extend(opened_breakers(experiment).await?);
    Ok(findings)
}

fn violated(verdicts: &[Verdict]) -> Vec<Detection> {
    let violated = verdicts.iter().filter(|verdict| !verdict.ok());
    violated
        .map(|verdict| Detection {
            oracle: verdict.name.to_owned(),
            count: verdict.violations,
            example: verdict.examples.first().cloned().unwrap_or_default(),
        })
        .collect()
}

/// Orders that had to be confirmed and are not: with stock, a good card, no cancellation, and no permanent loss.
async fn unconfirmed(experiment: &Experiment) -> anyhow::Result<Option<Detection>> {
    let found: Vec<String> = sqlx::query_scalar(
        "select format('order %s should be CONFIRMED and is %s%s', wanted.order_id, coalesce(o.status, 'missing'),
            ': ' || o.cancel_reason)
        from unnest($1::uuid[]) as wanted (order_id)
        left join orders.customer_order o using (order_id)
        where o.status is distinct from 'CONFIRMED'",
    )
    .bind::<&[Uuid]>(&experiment.must_be_confirmed)
    .fetch_all(&experiment.testbed.pool)
    .await?;
    Ok(detection(GOOD_ORDERS, found))
}

/// Breakers that opened although no system has failed.
async fn opened_breakers(experiment: &Experiment) -> anyhow::Result<Option<Detection>> {
    if experiment.something_failed {
        return Ok(None);
    }
    let found: Vec<String> = sqlx::query_scalar(
        "select format('the breaker of %s opened: %s', step, why)
        from (
            select * from orders.breaker_change
            union all
            select * from inventory.breaker_change
            union all
            select * from payment.breaker_change
        ) changes
        where upper(to_state) = 'OPEN'",
    )
    .fetch_all(&experiment.testbed.pool)
    .await?;
    Ok(detection(BREAKERS, found))
}

fn detection(oracle: &str, found: Vec<String>) -> Option<Detection> {
    let example = found.first()?.clone();
    Some(Detection { oracle: oracle.to_owned(), count: found.len() as u64, example })
}
