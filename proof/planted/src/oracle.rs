//! What notices a mistake: the audit, the clients' expectations, and what nobody may find in the journal of the breakers.

use std::time::Duration;

use chaos::Stage;
use console::audit::{Options, Verdict, audit};
use serde::Serialize;
use uuid::Uuid;

use crate::scene::Scene;

/// The name of the clients' oracle.
pub const GOOD_ORDERS: &str = "good_orders_are_confirmed";
/// The name of the oracle that reads the journal of the breakers.
pub const BREAKERS: &str = "no_breaker_opens_for_nothing";

/// One thing that is wrong, and who says so.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// An invariant of the audit, or one of the oracles here.
    pub oracle: String,
    pub count: u64,
    pub example: String,
}

/// What an audit finds while there is work to do.
pub async fn at_work(stage: &Stage) -> anyhow::Result<Vec<Finding>> {
    let options = Options { at_work: true, ..Options::default() };
    Ok(violated(&audit(&stage.stores(), &stage.gateway_url, &options).await?.invariants))
}

/// Waits until nothing is in flight, and asks everybody.
pub async fn in_the_end(scene: &Scene, settle: Duration) -> anyhow::Result<Vec<Finding>> {
    let report = scene.stage.audit(Options { settle, ..Default::default() }).await?;
    let mut findings = violated(&report.invariants);
    findings.extend(unconfirmed(scene).await?);
    findings.extend(opened_breakers(scene).await?);
    Ok(findings)
}

fn violated(verdicts: &[Verdict]) -> Vec<Finding> {
    let violated = verdicts.iter().filter(|verdict| !verdict.ok());
    violated
        .map(|verdict| Finding {
            oracle: verdict.name.to_owned(),
            count: verdict.violations,
            example: verdict.examples.first().cloned().unwrap_or_default(),
        })
        .collect()
}

/// Orders that had to be confirmed and are not: there was stock, the card was good, nobody cancelled, and nothing was
/// lost for good.
async fn unconfirmed(scene: &Scene) -> anyhow::Result<Option<Finding>> {
    let found: Vec<String> = sqlx::query_scalar(
        "select format('order %s should be CONFIRMED and is %s%s', wanted.order_id, coalesce(o.status, 'missing'),
            ': ' || o.cancel_reason)
        from unnest($1::uuid[]) as wanted (order_id)
        left join orders.customer_order o using (order_id)
        where o.status is distinct from 'CONFIRMED'",
    )
    .bind::<&[Uuid]>(&scene.must_be_confirmed)
    .fetch_all(&scene.stage.pool)
    .await?;
    Ok(finding(GOOD_ORDERS, found))
}

/// Breakers that opened in a suite in which no system has failed.
async fn opened_breakers(scene: &Scene) -> anyhow::Result<Option<Finding>> {
    if scene.something_failed {
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
    .fetch_all(&scene.stage.pool)
    .await?;
    Ok(finding(BREAKERS, found))
}

fn finding(oracle: &str, found: Vec<String>) -> Option<Finding> {
    let example = found.first()?.clone();
    Some(Finding { oracle: oracle.to_owned(), count: found.len() as u64, example })
}
