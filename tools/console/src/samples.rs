//! Sample products for the first orders. Existing products are not changed.

use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;

use crate::suite::{Addresses, NewProduct, Suite};

/// SKU, price in cents, quantity, category and name, separated by tabs; one product a line.
const PRODUCTS: &str = include_str!("samples.tsv");

/// `console samples`.
#[derive(Debug, clap::Args)]
pub struct SamplesArgs {
    /// How many of the 100 sample products to create
    #[arg(default_value_t = 6)]
    count: usize,
    /// How long the products may take to reach order
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    limit: Duration,
    #[command(flatten)]
    addresses: Addresses,
}

/// Creates missing products, and waits until order can price all of them.
pub async fn command(args: &SamplesArgs) -> anyhow::Result<bool> {
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    let products: Vec<NewProduct> = products()?.into_iter().take(args.count).collect();
    try_join_all(products.iter().map(|product| suite.sell(product, args.limit))).await?;
    Ok(true)
}

fn products() -> anyhow::Result<Vec<NewProduct>> {
    let lines = PRODUCTS.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| product(line).with_context(|| format!("not a product: {line}"))).collect()
}

fn product(line: &str) -> Option<NewProduct> {
    let mut fields = line.split('\t');
    let mut field = || fields.next();
    let (sku, price, quantity, category, name) = (field()?, field()?, field()?, field()?, field()?);
    let product = NewProduct::of(sku, name, price.parse().ok()?, quantity.parse().ok()?);
    Some(NewProduct { category: Some(category.to_owned()), ..product })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_hundred_different_products_begin_with_the_laptop() {
        let products = products().expect("all lines are products");
        let skus: BTreeSet<&str> = products.iter().map(|product| product.sku.as_str()).collect();
        assert_eq!((products.len(), skus.len()), (100, 100));
        assert!(products.iter().take(6).any(|product| product.sku == "LAPTOP-15"));
    }
}
