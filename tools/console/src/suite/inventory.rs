//! Inventory's API: products with their stock, and reservations.

use std::time::Duration;

use anyhow::Context;
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{INVENTORY, Money, Suite, SuiteError, until, with_json};

/// A product to be created.
#[derive(Debug, Clone, Serialize)]
pub struct NewProduct {
    pub sku: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    pub price: Money,
    pub initial_quantity: i64,
}

impl NewProduct {
    /// At a price in US cents.
    pub fn of(sku: &str, name: &str, price: i64, units: i64) -> Self {
        let (sku, name, price) = (sku.to_owned(), name.to_owned(), Money::usd(price));
        NewProduct { sku, name, category: None, price, initial_quantity: units }
    }
}

/// A product with its stock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Product {
    pub sku: String,
    pub name: String,
    pub price: Money,
    pub available: i64,
    pub reserved: i64,
    pub supplied: i64,
    pub status: String,
}

/// The reservation of an order.
#[derive(Debug, Clone, Deserialize)]
pub struct Reservation {
    pub status: String,
    #[serde(default)]
    pub lines: Vec<ReservationLine>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ReservationLine {
    pub sku: String,
    pub quantity: i64,
    pub status: String,
}

impl Suite {
    pub async fn create_product(&self, product: &NewProduct) -> Result<(), SuiteError> {
        self.done(with_json(self.api(Method::POST, INVENTORY, "products"), product)).await
    }

    /// Creates a product unless it exists, and waits until order can price it.
    ///
    /// # Errors
    /// Also when the product does not reach order within the limit.
    pub async fn sell(&self, product: &NewProduct, limit: Duration) -> anyhow::Result<()> {
        let created = async || match self.create_product(product).await {
            Err(error) if error.status() == Some(StatusCode::CONFLICT) => Ok(Some(())),
            answer => answer.map(Some),
        };
        until(limit, created).await.with_context(|| format!("inventory does not create {}", product.sku))?;
        let known = until(limit, || self.product_view(&product.sku)).await?;
        known.with_context(|| format!("the product {} does not reach order in time", product.sku)).map(drop)
    }

    pub async fn product(&self, sku: &str) -> Result<Option<Product>, SuiteError> {
        self.http.found(self.get(INVENTORY, &format!("products/{sku}"))).await
    }

    /// Changes the given fields of a product.
    pub async fn change_product(&self, sku: &str, fields: &Value) -> Result<(), SuiteError> {
        self.done(with_json(self.api(Method::PATCH, INVENTORY, &format!("products/{sku}")), fields)).await
    }

    pub async fn change_price(&self, sku: &str, cents: i64) -> Result<(), SuiteError> {
        self.change_product(sku, &json!({ "price": Money::usd(cents) })).await
    }

    pub async fn products(&self) -> Result<Vec<Product>, SuiteError> {
        self.http.list_of(|| self.get(INVENTORY, "products")).await
    }

    pub async fn replenish(&self, sku: &str, quantity: i64, reason: &str) -> Result<(), SuiteError> {
        let request = self.api(Method::POST, INVENTORY, &format!("products/{sku}/replenish"));
        self.done(with_json(request, &json!({ "quantity": quantity, "reason": reason }))).await
    }

    pub async fn reservation(&self, order_id: Uuid) -> Result<Option<Reservation>, SuiteError> {
        self.http.found(self.get(INVENTORY, &format!("reservations/{order_id}"))).await
    }
}
