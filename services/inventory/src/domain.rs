//! What inventory decides, as pure functions: which orders can be filled, what a cancellation gives
//! back, and how a product changes. Each works on what the caller has read under its locks.

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

/// The units of a product: what was ever supplied is either available or reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stock {
    pub available: i64,
    pub reserved: i64,
    pub supplied: i64,
}

/// A product of the catalogue with its stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockedProduct {
    pub product: Product,
    pub stock: Stock,
    pub updated_at: OffsetDateTime,
}

/// What one order wants of each SKU; several lines of one SKU are one wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(BTreeMap<Sku, i64>);

/// An order that order should never have accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableOrder {
    #[error("the order has no lines")]
    NoLines,
    #[error("{quantity} units of {sku} cannot be reserved")]
    Quantity { sku: Sku, quantity: i64 },
    #[error("the lines of {sku} add up to more than can be counted")]
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

/// What becomes of an order's wish for stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// All lines, one per SKU, in the order of the SKUs.
    Reserved(Vec<StockLine>),
    /// No line: at least one cannot be filled.
    Refused { reason: String, shortages: Vec<Shortage> },
}

/// Decides the orders in turn: who comes first is served first, and each gets all its lines or none.
/// Products that are not given are not in the catalogue.
pub fn reserve(orders: &[Wanted], products: &[StockedProduct]) -> Vec<Decision> {
    let mut shelves: HashMap<&Sku, Shelf> = products.iter().map(|p| (&p.product.sku, Shelf::of(p))).collect();
    orders.iter().map(|wanted| decide(wanted, &mut shelves)).collect()
}

/// The units that these lines come to, per SKU.
pub fn total<'l>(lines: impl IntoIterator<Item = &'l StockLine>) -> BTreeMap<Sku, i64> {
    let mut total = BTreeMap::new();
    for line in lines {
        *total.entry(line.sku.clone()).or_default() += line.quantity;
    }
    total
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shelf {
    Available(i64),
    Discontinued,
}

impl Shelf {
    fn of(item: &StockedProduct) -> Self {
        match item.product.status {
            ProductStatus::Active => Shelf::Available(item.stock.available),
            ProductStatus::Discontinued => Shelf::Discontinued,
        }
    }
}

fn decide(wanted: &Wanted, shelves: &mut HashMap<&Sku, Shelf>) -> Decision {
    let lacking = |(sku, quantity)| lack(sku, quantity, shelves.get(sku).copied());
    let (shortages, reasons): (Vec<Shortage>, Vec<String>) =
        wanted.0.iter().map(|(sku, quantity)| (sku, *quantity)).filter_map(lacking).unzip();
    if let Some(first) = reasons.first() {
        let reason = match reasons.len() - 1 {
            0 => first.clone(),
            more => format!("{first} (and {more} more)"),
        };
        return Decision::Refused { reason, shortages };
    }
    let take = |(sku, quantity): (&Sku, &i64)| {
        if let Some(Shelf::Available(available)) = shelves.get_mut(sku) {
            *available -= quantity;
        }
        StockLine { sku: sku.clone(), quantity: *quantity }
    };
    Decision::Reserved(wanted.0.iter().map(take).collect())
}

/// What a line lacks, in numbers and in words; none when it can be filled.
fn lack(sku: &Sku, requested: i64, shelf: Option<Shelf>) -> Option<(Shortage, String)> {
    let (available, words) = match shelf {
        Some(Shelf::Available(available)) if available >= requested => return None,
        Some(Shelf::Available(available)) => {
            (available, format!("{sku} is out of stock: {requested} wanted, {available} available"))
        }
        Some(Shelf::Discontinued) => (0, format!("{sku} is discontinued")),
        None => (0, format!("{sku} is not in the catalogue")),
    };
    Some((Shortage { sku: sku.clone(), requested, available }, words))
}

/// What inventory has answered to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ReservationStatus {
    /// All lines are held for the order.
    Reserved,
    /// At least one line could not be filled, so nothing is held.
    Refused,
    /// The order was cancelled, and what it held given back.
    Released,
    /// The order was cancelled before it could reserve anything; it never will.
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
    pub status: ReservationStatus,
    /// Grows by one with every event of the reservation.
    pub version: i64,
    /// What it still holds.
    pub held: Vec<StockLine>,
}

impl Reservation {
    /// The version of a reservation that has told nothing yet.
    pub const UNTOLD: i64 = 0;
    /// The version of a reservation whose first event is what became of it.
    pub const DECIDED: i64 = Self::UNTOLD + 1;

    /// Undoes the reservation as far as there is anything to undo, and returns what is given back.
    /// Answers every time, so the version grows every time.
    pub fn release(&mut self) -> Vec<StockLine> {
        self.version += 1;
        if self.status == ReservationStatus::Reserved {
            self.status = ReservationStatus::Released;
        }
        std::mem::take(&mut self.held)
    }
}

/// What is to be changed about a product.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub price: Option<Money>,
    pub name: Option<String>,
    pub status: Option<ProductStatus>,
}

/// What changes came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The product was so already.
    Nothing,
    /// Another price, and perhaps other details, too.
    Price(Product),
    /// Other details at the same price.
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

/// More units than can be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sku}: {supplied} units were supplied, and {more} more cannot be counted")]
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
