//! The products of the load: enough of most, and of the scarce ones about half of what is wanted.

use std::time::Duration;

use super::{
    args::LoadArgs,
    plan::{PLENTY, SCARCE, plenty_sku, scarce_sku},
};
use crate::suite::{NewProduct, Suite};

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
        None => {}
    }
    suite.sell(&NewProduct::of(sku, &format!("Load {sku}"), price, units), Duration::from_secs(20)).await
}
