//! 10: every event of some orders, from every service, is delivered three times. Each takes effect once.

use std::{collections::HashSet, time::Duration};

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{FaultSpec, Order, SERVICES, Scope},
};

const EACH: usize = 10;
/// Of an order that is paid, one that is declined, and one that is cancelled after it was paid.
const EVENTS: u64 = 4 + 6 + 7;

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 1_000, 1_700).await?;
    let position = run.suite.gateway_position().await?;
    let duplicates = duplicates(run).await?;

    run.step("From now on the broker stores every event of orders of this product three times").await;
    let mut armed = Vec::new();
    for service in SERVICES {
        let scope = Some(Scope { sku: Some(sku.clone()), ..Scope::default() });
        let fault = FaultSpec { copies: Some(2), scope, ..FaultSpec::new("bus_publish", "duplicate") };
        armed.push((service, run.arm(service, fault).await?));
    }

    run.step(&format!("{EACH} orders are paid, {EACH} declined, and {EACH} cancelled by their customers")).await;
    let paid = run.place_all(&sku, EACH, "tok_visa").await?;
    let declined = run.place_all(&sku, EACH, "tok_declined").await?;
    let regretted = run.place_all(&sku, EACH, "tok_visa").await?;
    run.claim_tally(&regretted, EACH, Duration::from_secs(20)).await?;
    for order in &regretted {
        run.cancel(order.order_id, "changed their mind").await?;
    }
    run.claim_tally(&paid, EACH, Duration::from_secs(20)).await?;
    run.claim_tally(&declined, 0, Duration::from_secs(20)).await?;
    run.claim_tally(&regretted, 0, Duration::from_secs(20)).await?;

    run.step("The effects of the repeats").await;
    // The last event of a saga is published after its end.
    let all = EVENTS * EACH as u64;
    let tripled = async || {
        let mut tripled = 0;
        for (service, fault) in &armed {
            tripled += run.suite.armed_fault(*service, fault.id).await?.map_or(0, |armed| armed.hits);
        }
        Ok((tripled >= all).then_some(tripled))
    };
    let tripled = run.claim_soon("every event of these orders has been published", tripled).await?;
    run.claim_is("each is in the broker three times", tripled, all);
    for service in SERVICES {
        run.disarm(service).await?;
    }
    let recognised = self::duplicates(run).await? - duplicates;
    run.note(&format!("{recognised} repeats came in a later batch, and the inbox recognised them"));
    run.claim("at least one repeat was recognised", recognised > 0.0);
    run.claim_stock(&sku, 1_000 - EACH as i64, EACH as i64).await?;
    let orders = [paid, declined, regretted].concat();
    let charges = run.suite.charges_since(position, &orders).await?;
    run.claim_is("every card was charged once", charges, 2 * EACH);
    each_step_once(run, &orders).await
}

async fn each_step_once(run: &ScenarioRun, orders: &[Order]) -> anyhow::Result<()> {
    let mut doubled = Vec::new();
    for saga in run.suite.sagas(orders.iter().map(|order| order.saga_id)).await? {
        let mut taken = HashSet::new();
        let again = saga.steps.into_iter().filter(|step| !taken.insert(step.step.clone()));
        doubled.extend(again.map(|step| (saga.saga_id, step.step)));
    }
    run.claim_is("in no saga a step was executed twice", doubled, vec![]);
    Ok(())
}

async fn duplicates(run: &ScenarioRun) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for service in SERVICES {
        sum += run.suite.metric(service, "inbox_duplicates_total").await?.unwrap_or_default();
    }
    Ok(sum)
}
