//! 3: order's view of the catalogue has missed a change, and is rebuilt from inventory's.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{NewOrder, ORDER, ProductView, SuiteError, until},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product reaches order's view by an event", 10, 4_200).await?;
    let view = by_sku(run.suite.product_views().await?);
    run.note(&format!("order knows {} products", view.len()));
    run.claim("the new one is among them", view.contains_key(&sku));

    run.step("Order stops consuming price changes, and inventory changes a price").await;
    run.pause_consumer(ORDER, "project_product_price_changed").await?;
    let missed = run.suite.change_price(&sku, 4_300).await;
    let stale = by_sku(run.suite.product_views().await?);
    let stale = stale.get(&sku).map(|view| view.price.amount);

    run.step("The view is rebuilt from a snapshot of inventory's catalogue").await;
    let rebuilding = run.suite.rebuild_catalogue().await;
    let fresh = by_sku(run.suite.product_views().await?);
    run.resume_consumer(ORDER, "project_product_price_changed").await?;
    missed?;
    rebuilding?;
    run.claim_is("before, the view had the old price", stale, Some(4_200));
    run.claim_is("after, it has the new one", fresh.get(&sku).map(|view| view.price.amount), Some(4_300));
    let expected = catalogue(run).await?;
    let rebuilt = until(Duration::from_secs(20), async || {
        Ok(Some(by_sku(run.suite.product_views().await?)).filter(|view| *view == expected))
    })
    .await?;
    let claim =
        format!("the view is inventory's catalogue: {} products, same names, prices and states", expected.len());
    run.claim(&claim, rebuilt.is_some());
    let rebuilt = by_sku(run.suite.product_views().await?);
    let lost: Vec<&String> = view.keys().filter(|sku| !rebuilt.contains_key(*sku)).collect();
    run.claim_is("no known product is lost", lost, Vec::<&String>::new());

    run.step("An order is priced from the rebuilt view").await;
    let placed = run.place(&NewOrder::of("carol", &sku, 1, "tok_visa")).await?;
    let ended = run.ended(placed.order_id).await?;
    run.claim_is("it costs what inventory says", ended.order.total.amount, 4_300);
    run.claim_is("the order is CONFIRMED", ended.order.status.as_str(), "CONFIRMED");
    Ok(())
}

async fn catalogue(run: &ScenarioRun) -> Result<BTreeMap<String, ProductView>, SuiteError> {
    let products = run.suite.products().await?.into_iter();
    Ok(by_sku(products.map(|p| ProductView { sku: p.sku, name: p.name, price: p.price, status: p.status })))
}

fn by_sku(products: impl IntoIterator<Item = ProductView>) -> BTreeMap<String, ProductView> {
    products.into_iter().map(|product| (product.sku.clone(), product)).collect()
}
