//! Inventory's API: products with their stock, and reservations.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Money, Suite, SuiteError, with_json};

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

/// What inventory answered to an order.
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
        let url = format!("{}/api/products", self.addresses.inventory_url);
        self.http.text(with_json(self.http.post(&url), product)).await.map(drop)
    }

    pub async fn product(&self, sku: &str) -> Result<Option<Product>, SuiteError> {
        let url = format!("{}/api/products/{sku}", self.addresses.inventory_url);
        self.http.found(self.http.get(&url)).await
    }

    pub async fn change_price(&self, sku: &str, cents: i64) -> Result<(), SuiteError> {
        let url = format!("{}/api/products/{sku}", self.addresses.inventory_url);
        let body = serde_json::json!({ "price": { "amount": cents, "currency": "USD" } });
        self.http.text(with_json(self.http.request(reqwest::Method::PATCH, &url), &body)).await.map(drop)
    }

    pub async fn products(&self) -> Result<Vec<Product>, SuiteError> {
        self.http.list(&format!("{}/api/products", self.addresses.inventory_url)).await
    }

    pub async fn replenish(&self, sku: &str, quantity: i64, reason: &str) -> Result<(), SuiteError> {
        let url = format!("{}/api/products/{sku}/replenish", self.addresses.inventory_url);
        let body = serde_json::json!({ "quantity": quantity, "reason": reason });
        self.http.text(with_json(self.http.post(&url), &body)).await.map(drop)
    }

    pub async fn reservation(&self, order_id: Uuid) -> Result<Option<Reservation>, SuiteError> {
        let url = format!("{}/api/reservations/{order_id}", self.addresses.inventory_url);
        self.http.found(self.http.get(&url)).await
    }
}
