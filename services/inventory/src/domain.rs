//! The decisions of inventory, as pure functions: which orders can be filled, what a cancellation releases,
//! and how a product changes. Their input is what the caller has read under its locks.

use std::collections::{BTreeMap, HashMap};

use contracts::{
    Money, Sku,
    catalogue::{Product, ProductStatus},
    order_fulfillment::{OrderLine, Shortage, StockLine},
};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// The most units that can be supplied at once.
pub const MAX_SUPPLY: i64 = 1_000_000_000;

/// The units of a product: every supplied unit is either available or reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Stock {
    /// Units that can be reserved.
    #[schema(minimum = 0)]
    pub available: i64,
    /// Units that pending and confirmed orders hold.
    #[schema(minimum = 0)]
    pub reserved: i64,
    /// All units that were ever supplied.
    #[schema(minimum = 0)]
    pub supplied: i64,
}

/// A product with its stock: `available + reserved = supplied`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ProductBody)]
pub struct StockedProduct {
    #[serde(flatten)]
    pub product: Product,
    #[serde(flatten)]
    pub stock: Stock,
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// The wanted units of one order by SKU; several lines of one SKU are summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(BTreeMap<Sku, i64>);

/// An invalid order, which the order service should not have accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableOrder {
    #[error("the order has no lines")]
    NoLines,
    #[error("{quantity} units of {sku} cannot be reserved")]
    Quantity { sku: Sku, quantity: i64 },
    #[error("the sum of the lines of {sku} overflows")]
    Overflow { sku: Sku },
}

impl Wanted {
    pub fn of(lines: &[OrderLine]) -> Result<Self, UnusableOrder> {
        if lines.is_empty() {
            return Err(UnusableOrder::NoLines);
        }
        let mut wanted = BTreeMap::new();
        for OrderLine { sku, quantity, .. } in lines {
            if *quantity < 1 {
                return Err(UnusableOrder::Quantity { sku: sku.clone(), quantity: *quantity });
            }
            let sum: &mut i64 = wanted.entry(sku.clone()).or_default();
            *sum = sum.checked_add(*quantity).ok_or_else(|| UnusableOrder::Overflow { sku: sku.clone() })?;
        }
        Ok(Wanted(wanted))
    }

    pub fn skus(&self) -> impl Iterator<Item = &Sku> {
        self.0.keys()
    }
}

/// The decision about an order's lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// All lines are reserved: one per SKU, in the order of the SKUs.
    Reserved(Vec<StockLine>),
    /// No line is reserved: at least one cannot be filled.
    Refused { reason: String, shortages: Vec<Shortage> },
}

/// Decides the orders one after the other, in their sequence; each gets all its lines or none.
/// Products that are missing in `products` are not in the catalogue.
pub fn reserve(orders: &[Wanted], products: &[StockedProduct]) -> Vec<Decision> {
    let mut stock: HashMap<&Sku, Availability> =
        products.iter().map(|p| (&p.product.sku, Availability::of(p))).collect();
    orders.iter().map(|wanted| decide(wanted, &mut stock)).collect()
}

/// The sum of the lines, per SKU.
pub fn total<'l>(lines: impl IntoIterator<Item = &'l StockLine>) -> BTreeMap<Sku, i64> {
    let mut total = BTreeMap::new();
    for line in lines {
        *total.entry(line.sku.clone()).or_default() += line.quantity;
    }
    total
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    Units(i64),
    Discontinued,
}

impl Availability {
    fn of(item: &StockedProduct) -> Self {
        match item.product.status {
            ProductStatus::Active => Availability::Units(item.stock.available),
            ProductStatus::Discontinued => Availability::Discontinued,
        }
    }
}

fn decide(wanted: &Wanted, stock: &mut HashMap<&Sku, Availability>) -> Decision {
    let short = |(sku, quantity)| shortage(sku, quantity, stock.get(sku).copied());
    let (shortages, reasons): (Vec<Shortage>, Vec<String>) =
        wanted.0.iter().map(|(sku, quantity)| (sku, *quantity)).filter_map(short).unzip();
    if let Some(first) = reasons.first() {
        let reason = match reasons.len() - 1 {
            0 => first.clone(),
            more => format!("{first} (and {more} more)"),
        };
        return Decision::Refused { reason, shortages };
    }
    let take = |(sku, quantity): (&Sku, &i64)| {
        if let Some(Availability::Units(available)) = stock.get_mut(sku) {
            *available -= quantity;
        }
        StockLine { sku: sku.clone(), quantity: *quantity }
    };
    Decision::Reserved(wanted.0.iter().map(take).collect())
}

/// The shortage of a line, with its reason; none when the line can be filled.
fn shortage(sku: &Sku, requested: i64, availability: Option<Availability>) -> Option<(Shortage, String)> {
    let (available, reason) = match availability {
        Some(Availability::Units(available)) if available >= requested => return None,
        Some(Availability::Units(available)) => {
            (available, format!("{sku} is out of stock: {requested} wanted, {available} available"))
        }
        Some(Availability::Discontinued) => (0, format!("{sku} is discontinued")),
        None => (0, format!("{sku} is not in the catalogue")),
    };
    Some((Shortage { sku: sku.clone(), requested, available }, reason))
}

/// The status of an order's reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ReservationStatus {
    /// All lines are held for the order.
    Reserved,
    /// At least one line could not be filled, so nothing is held.
    Refused,
    /// The order was cancelled, and its units are released.
    Released,
    /// The order was cancelled before it reserved anything. A later `reserve_stock` is a no-op.
    Tombstone,
}

impl ReservationStatus {
    const ALL: [Self; 4] = [Self::Reserved, Self::Refused, Self::Released, Self::Tombstone];

    pub const fn as_str(self) -> &'static str {
        match self {
            ReservationStatus::Reserved => "RESERVED",
            ReservationStatus::Refused => "REFUSED",
            ReservationStatus::Released => "RELEASED",
            ReservationStatus::Tombstone => "TOMBSTONE",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A reservation, locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub order_id: Uuid,
    pub saga_id: Uuid,
    pub status: ReservationStatus,
    /// Grows by one with every event of the reservation.
    pub version: i64,
    /// The lines that it still holds.
    pub held: Vec<StockLine>,
}

impl Reservation {
    /// The version of a reservation that has published no event yet.
    pub const UNPUBLISHED: i64 = 0;
    /// The version of a reservation whose first event is the decision.
    pub const DECIDED: i64 = Self::UNPUBLISHED + 1;

    /// Releases the lines that the reservation still holds, and returns them. Every call is followed by a receipt, so every
    /// call increases the version.
    pub fn release(&mut self) -> Vec<StockLine> {
        self.version += 1;
        if self.status == ReservationStatus::Reserved {
            self.status = ReservationStatus::Released;
        }
        std::mem::take(&mut self.held)
    }
}

/// Requested changes of a product.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub price: Option<Money>,
    pub name: Option<String>,
    pub status: Option<ProductStatus>,
}

/// The result of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The product has these values already.
    Nothing,
    /// The price changed, and perhaps other details, too.
    Price(Product),
    /// Other details changed, the price did not.
    Details(Product),
}

/// The product after the changes, at its next version.
pub fn change(product: &Product, changes: Changes) -> Changed {
    let next = Product {
        price: changes.price.unwrap_or(product.price),
        name: changes.name.unwrap_or_else(|| product.name.clone()),
        status: changes.status.unwrap_or(product.status),
        ..product.clone()
    };
    if next == *product {
        return Changed::Nothing;
    }
    let next = Product { version: product.version + 1, ..next };
    if next.price == product.price { Changed::Details(next) } else { Changed::Price(next) }
}

/// The supplied units would overflow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sku}: {supplied} supplied units and {more} more overflow")]
pub struct SupplyOverflow {
    pub sku: Sku,
    pub supplied: i64,
    pub more: i64,
}

/// The product with `more` units, at its next version.
pub fn supply(item: &StockedProduct, more: i64) -> Result<StockedProduct, SupplyOverflow> {
    let Stock { available, reserved, supplied } = item.stock;
    let overflow = || SupplyOverflow { sku: item.product.sku.clone(), supplied, more };
    let stock = Stock {
        available: available.checked_add(more).ok_or_else(overflow)?,
        reserved,
        supplied: supplied.checked_add(more).ok_or_else(overflow)?,
    };
    let product = Product { version: item.product.version + 1, ..item.product.clone() };
    Ok(StockedProduct { product, stock, ..item.clone() })
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
