//! The products of the load: enough of most, and of the scarce ones about half of what is wanted.

use std::time::Duration;

use anyhow::Context;

use super::plan::{PLENTY, Planned, SCARCE, plenty_sku, scarce_sku};
use crate::suite::{Money, NewProduct, Suite, until};

/// More than any load uses up.
const ENOUGH: i64 = 1_000_000;

pub(super) async fn prepare(suite: &Suite, orders: &[Planned]) -> anyhow::Result<()> {
    for n in 0..PLENTY {
        supply(suite, &plenty_sku(n), ENOUGH, 1_000 + 50 * n as i64).await?;
    }
    for n in 0..SCARCE {
        let sku = scarce_sku(n);
        let lines = orders.iter().flat_map(|planned| &planned.order.lines);
        let wanted: i64 = lines.filter(|line| line.sku == sku).map(|line| line.quantity).sum();
        supply(suite, &sku, wanted / 2, 1_500).await?;
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
            suite.create_product(&NewProduct { sku: sku.to_owned(), name, price, initial_quantity: units }).await?;
        }
    }
    let known = until(Duration::from_secs(20), || suite.product_view(sku)).await?;
    known.with_context(|| format!("order does not get to know the product {sku}"))?;
    Ok(())
}
