//! Inventory's events about its products, and the steps that maintain views of them. Outside every saga.

use saga::{Event, EventType, Kind, Step, StepOn};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{INVENTORY, Money, ORDER, Sku};

/// Whether a product can be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProductStatus {
    Active,
    Discontinued,
}

impl ProductStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            ProductStatus::Active => "ACTIVE",
            ProductStatus::Discontinued => "DISCONTINUED",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [ProductStatus::Active, ProductStatus::Discontinued].into_iter().find(|status| status.as_str() == text)
    }
}

/// A product as it is after the event; the higher version is the newer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Product {
    pub sku: Sku,
    pub name: String,
    pub category: Option<String>,
    pub price: Money,
    pub status: ProductStatus,
    pub version: i64,
}

macro_rules! product_events {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            pub product: Product,
        }

        impl Event for $name {
            const TYPE: EventType =
                EventType { name: stringify!($name), version: 1, aggregate: "product", publishers: &[INVENTORY], refusal: false };

            fn aggregate_id(&self) -> String {
                self.product.sku.to_string()
            }
        }
    )*};
}

product_events! {
    /// A product was added to the catalogue.
    ProductCreated,
    /// The price of a product changed (and perhaps other details, too).
    ProductPriceChanged,
    /// The name or status of a product changed, its price did not.
    ProductDetailsChanged,
}

/// More of a product was supplied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockReplenished {
    pub sku: Sku,
    pub quantity: i64,
    pub available: i64,
    pub reason: String,
}

impl Event for StockReplenished {
    const TYPE: EventType = EventType {
        name: "StockReplenished",
        version: 1,
        aggregate: "product",
        publishers: &[INVENTORY],
        refusal: false,
    };

    fn aggregate_id(&self) -> String {
        self.sku.to_string()
    }
}

pub static PROJECT_PRODUCT_CREATED: StepOn<ProductCreated> =
    StepOn::new(0, "project_product_created", ORDER, &[], Kind::Projection);

pub static PROJECT_PRODUCT_PRICE_CHANGED: StepOn<ProductPriceChanged> =
    StepOn::new(0, "project_product_price_changed", ORDER, &[], Kind::Projection);

pub static PROJECT_PRODUCT_DETAILS_CHANGED: StepOn<ProductDetailsChanged> =
    StepOn::new(0, "project_product_details_changed", ORDER, &[], Kind::Projection);

/// The steps by which order maintains its own view of the catalogue.
pub static PROJECTIONS: &[&Step] =
    &[&PROJECT_PRODUCT_CREATED.step, &PROJECT_PRODUCT_PRICE_CHANGED.step, &PROJECT_PRODUCT_DETAILS_CHANGED.step];
