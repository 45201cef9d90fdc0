//! The products of the load: enough stock of most, and of the scarce ones about half of what is ordered.

use std::time::Duration;

use super::{
    args::LoadArgs,
    plan::{PLENTY, SCARCE, plenty_sku, scarce_sku},
};
use crate::suite::{NewProduct, Suite};

/// More units than any load orders.
const ENOUGH: i64 = 1_000_000;

pub(super) async fn prepare(suite: &Suite, args: &LoadArgs) -> anyhow::Result<()> {
    for n in 0..PLENTY {
        supply(suite, &plenty_sku(n), ENOUGH, 1_000 + 50 * n as i64).await?;
    }
    // Without a known number of orders these products sell out.
    let wanted = args.expected().unwrap_or_default() as f64 * args.mix().scarce / 100.0;
    for n in 0..SCARCE {
        supply(suite, &scarce_sku(n), (wanted / 2.0) as i64 / SCARCE as i64, 1_500).await?;
    }
    Ok(())
}

/// Makes at least so many units available, and waits until order knows the product.
async fn supply(suite: &Suite, sku: &str, units: i64, price: i64) -> anyhow::Result<()> {
    if let Some(product) = suite.product(sku).await?.filter(|product| product.available < units) {
        suite.replenish(sku, units - product.available, "load").await?;
    }
    suite.sell(&NewProduct::of(sku, &format!("Load {sku}"), price, units), Duration::from_secs(20)).await
}
