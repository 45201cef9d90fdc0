//! 3: order's view of the catalogue has missed something, and is rebuilt from inventory's.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    demo::stage::Stage,
    suite::{NewOrder, ORDER, ProductView, SuiteError, until},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product reaches order's view by an event").await;
    let sku = stage.product(10, 4_200).await?;
    let view = by_sku(stage.suite.product_views().await?);
    stage.note(&format!("order knows {} products", view.len()));
    stage.claim("the new one is among them", view.contains_key(&sku));

    stage.step("Order stops listening to prices, and inventory changes one").await;
    stage.pause_consumer(ORDER, "project_product_price_changed").await?;
    let missed = stage.suite.change_price(&sku, 4_300).await;
    let stale = by_sku(stage.suite.product_views().await?);
    let stale = stale.get(&sku).map(|view| view.price.amount);

    stage.step("The view is rebuilt from a snapshot of inventory's catalogue").await;
    let rebuilding = stage.suite.rebuild_catalogue().await;
    let fresh = by_sku(stage.suite.product_views().await?);
    stage.resume_consumer(ORDER, "project_product_price_changed").await?;
    missed?;
    rebuilding?;
    stage.claim_is("before, the view had the old price", stale, Some(4_200));
    stage.claim_is("after, it has the new one", fresh.get(&sku).map(|view| view.price.amount), Some(4_300));
    let expected = catalogue(stage).await?;
    let rebuilt = until(Duration::from_secs(20), async || {
        Ok(Some(by_sku(stage.suite.product_views().await?)).filter(|view| *view == expected))
    })
    .await?;
    let claim =
        format!("the view is inventory's catalogue: {} products, same names, prices and states", expected.len());
    stage.claim(&claim, rebuilt.is_some());
    let rebuilt = by_sku(stage.suite.product_views().await?);
    let lost: Vec<&String> = view.keys().filter(|sku| !rebuilt.contains_key(*sku)).collect();
    stage.claim_is("nothing that was known is lost", lost, Vec::<&String>::new());

    stage.step("An order is priced from the rebuilt view").await;
    let placed = stage.place(&NewOrder::of("carol", &sku, 1, "tok_visa")).await?;
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_is("it costs what inventory says", ended.order.total.amount, 4_300);
    stage.claim_is("the order is CONFIRMED", ended.order.status.as_str(), "CONFIRMED");
    Ok(())
}

/// Inventory's catalogue as order should see it.
async fn catalogue(stage: &Stage) -> Result<BTreeMap<String, ProductView>, SuiteError> {
    let products = stage.suite.products().await?.into_iter();
    Ok(by_sku(products.map(|p| ProductView { sku: p.sku, name: p.name, price: p.price, status: p.status })))
}

fn by_sku(products: impl IntoIterator<Item = ProductView>) -> BTreeMap<String, ProductView> {
    products.into_iter().map(|product| (product.sku.clone(), product)).collect()
}
