//! Inventory's steps, as in `services/inventory/src/steps.rs`, one transaction each. Two SQL statements contain decisions and are
//! modelled by their effect: `insert into reservation … on conflict do nothing` begins a reservation, or writes a tombstone, only
//! where the order has no row; `update product … where available >= quantity` runs under the locks under which the stock was
//! read.

use std::sync::LazyLock;

use contracts::{
    Currency, INVENTORY, Money, Sku,
    catalogue::{Product, ProductStatus},
    order_fulfillment::{OrderLine, RESERVE_STOCK, StockLine},
};
use inventory::domain::{self, Decision, ReservationStatus, Stock, StockedProduct, Wanted};
use saga::Transition;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    Guards,
    mail::Kind,
    world::{Reservation, World, Wrong},
};

const PRICE: Money = Money { amount: 10, currency: Currency::USD };

static SKU: LazyLock<Option<Sku>> = LazyLock::new(|| Sku::try_from("A".to_owned()).ok());

/// The one product, with this many available units.
fn shelf(available: i8) -> Option<StockedProduct> {
    let product = Product {
        sku: SKU.clone()?,
        name: String::new(),
        category: None,
        price: PRICE,
        status: ProductStatus::Active,
        version: 1,
    };
    let available = i64::from(available);
    let stock = Stock { available, reserved: 0, supplied: available };
    Some(StockedProduct { product, stock, updated_at: OffsetDateTime::UNIX_EPOCH })
}

fn wanted() -> Option<Wanted> {
    Wanted::of(&[OrderLine { sku: SKU.clone()?, quantity: 1, unit_price: PRICE }]).ok()
}

impl World {
    /// Step 1.
    pub(crate) fn reserve_stock(&mut self, place: usize, guards: &Guards) {
        let available = match self.orders[place].seen.take() {
            Some(seen) if !guards.stock_is_locked => seen,
            _ => self.available,
        };
        let order = &mut self.orders[place];
        // A late event is skipped: the saga is compensating, or the order has a row already.
        if !order.moves_forward() || order.reservation.is_some() {
            return;
        }
        let decision = wanted().zip(shelf(available)).and_then(|(w, s)| domain::reserve(&[w], &[s]).pop());
        match decision {
            Some(Decision::Reserved(lines)) => {
                let held = lines.iter().map(|line| line.quantity).sum::<i64>() as i8;
                order.reservation = Some(Reservation { status: ReservationStatus::Reserved, held });
                order.publish(&RESERVE_STOCK, Kind::StockReserved);
                order.record(Transition::Advance { step: RESERVE_STOCK.number });
                self.available -= held;
                self.reserved += held;
            }
            Some(Decision::Refused { .. }) => {
                order.reservation = Some(Reservation { status: ReservationStatus::Refused, held: 0 });
                order.publish(&RESERVE_STOCK, Kind::StockReservationFailed);
                order.record(Transition::Stay);
            }
            None => order.wrong = Some(Wrong::NoRow),
        }
    }

    /// Its compensation.
    pub(crate) fn release_stock(&mut self, place: usize, guards: &Guards) {
        let order = &mut self.orders[place];
        if order.reservation.is_none() && guards.tombstones {
            order.reservation = Some(Reservation { status: ReservationStatus::Tombstone, held: 0 });
            order.history.tombstones[0] = true;
        }
        if let Some(reservation) = &mut order.reservation {
            let mut row = domain::Reservation {
                order_id: Uuid::nil(),
                saga_id: Uuid::nil(),
                status: reservation.status,
                version: domain::Reservation::DECIDED,
                held: SKU
                    .clone()
                    .map(|sku| StockLine { sku, quantity: i64::from(reservation.held) })
                    .into_iter()
                    .collect(),
            };
            let given_back = row.release().iter().map(|line| line.quantity).sum::<i64>() as i8;
            *reservation = Reservation { status: row.status, held: 0 };
            self.available += given_back;
            self.reserved -= given_back;
        }
        order.history.released = true;
        order.record(Transition::Receipt { from: INVENTORY });
    }
}
