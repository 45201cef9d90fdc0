//! 10: every event of some orders, from every service, is delivered three times. Each has its effect once.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::{FaultSpec, Order, SERVICES, Scope},
};

const EACH: usize = 10;
/// Of an order that is paid, one that is declined, and one that is cancelled after it was paid.
const EVENTS: u64 = 4 + 6 + 7;

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(1_000, 1_700).await?;
    let position = stage.suite.gateway_position().await?;
    let duplicates = duplicates(stage).await?;

    stage.step("From now on the broker stores every event of orders of this product three times").await;
    let mut armed = Vec::new();
    for service in SERVICES {
        let scope = Scope { sku: Some(sku.clone()), ..Scope::default() };
        let fault = FaultSpec::new("bus_publish", "duplicate").copies(2).scope(scope);
        armed.push((service, stage.arm(service, fault).await?));
    }

    stage.step(&format!("{EACH} orders are paid, {EACH} declined, and {EACH} cancelled by their customers")).await;
    let paid = stage.place_all(&sku, EACH, "tok_visa").await?;
    let declined = stage.place_all(&sku, EACH, "tok_declined").await?;
    let regretted = stage.place_all(&sku, EACH, "tok_visa").await?;
    stage.claim_tally(&regretted, EACH, Duration::from_secs(20)).await?;
    for order in &regretted {
        stage.cancel(order.order_id, "changed their mind").await?;
    }
    stage.claim_tally(&paid, EACH, Duration::from_secs(20)).await?;
    stage.claim_tally(&declined, 0, Duration::from_secs(20)).await?;
    stage.claim_tally(&regretted, 0, Duration::from_secs(20)).await?;

    stage.step("What the repeats have done").await;
    // The event that tells a saga's end leaves after it.
    let all = EVENTS * EACH as u64;
    let tripled = async || {
        let mut tripled = 0;
        for (service, fault) in &armed {
            tripled += stage.hits(*service, fault).await?;
        }
        Ok((tripled >= all).then_some(tripled))
    };
    let tripled = stage.claim_soon("every event of these orders has been published", PATIENCE, tripled).await?;
    stage.claim_is("each is in the broker three times", tripled, all);
    for service in SERVICES {
        stage.disarm(service).await?;
    }
    let recognised = self::duplicates(stage).await? - duplicates;
    stage.note(&format!("{recognised} repeats came in a batch of their own, and their inbox knew them"));
    stage.claim("some at least", recognised > 0.0);
    stage.claim_stock(&sku, 1_000 - EACH as i64, EACH as i64).await?;
    let orders = [paid, declined, regretted].concat();
    let charges = stage.suite.charges_since(position, &orders).await?;
    stage.claim_is("every card was charged once", charges, 2 * EACH);
    each_step_once(stage, &orders).await
}

/// Claims that in no journal a step stands twice.
async fn each_step_once(stage: &Stage, orders: &[Order]) -> anyhow::Result<()> {
    let mut doubled = Vec::new();
    for order in orders {
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for step in stage.suite.saga(order.saga_id).await?.map(|saga| saga.steps).unwrap_or_default() {
            *times.entry(step.step).or_default() += 1;
        }
        doubled.extend(times.into_iter().filter(|(_, times)| *times > 1).map(|(step, _)| (order.order_id, step)));
    }
    stage.claim_is("in no saga a step was taken twice", doubled, vec![]);
    Ok(())
}

async fn duplicates(stage: &Stage) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for service in SERVICES {
        sum += stage.suite.metric(service, "inbox_duplicates_total").await?.unwrap_or_default();
    }
    Ok(sum)
}
