//! The products of the load: enough of most, and of the scarce ones about half of what is wanted.

use std::time::Duration;

use anyhow::Context;

use super::{
    args::LoadArgs,
    plan::{PLENTY, SCARCE, plenty_sku, scarce_sku},
};
use crate::suite::{Money, NewProduct, Suite, until};

/// More than any load uses up.
const ENOUGH: i64 = 1_000_000;

pub(super) async fn prepare(suite: &Suite, args: &LoadArgs) -> anyhow::Result<()> {
    for n in 0..PLENTY {
        supply(suite, &plenty_sku(n), ENOUGH, 1_000 + 50 * n as i64).await?;
    }
    // If nobody can tell how many orders there will be, these products are sold out after a while.
    let wanted = args.expected().unwrap_or_default() as f64 * args.mix().scarce / 100.0;
    for n in 0..SCARCE {
        supply(suite, &scarce_sku(n), (wanted / 2.0) as i64 / SCARCE as i64, 1_500).await?;
    }
    Ok(())
}

/// Makes at least so many units available, and order know the product.
async fn supply(suite: &Suite, sku: &str, units: i64, price: i64) -> anyhow::Result<()> {
    match suite.product(sku).await? {
        Some(product) if product.available < units => {
            suite.replenish(sku, units - product.available, "load").await?;
        }
        Some(_) => {}
        None => {
            let name = format!("Load {sku}");
            let price = Money::usd(price);
            let product = NewProduct { sku: sku.to_owned(), name, category: None, price, initial_quantity: units };
            suite.create_product(&product).await?;
        }
    }
    let known = until(Duration::from_secs(20), || suite.product_view(sku)).await?;
    known.with_context(|| format!("order does not get to know the product {sku}"))?;
    Ok(())
}
