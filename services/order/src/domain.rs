//! The decisions of order, as pure functions: the price of an order, and how it may end.

mod customer;

use std::collections::HashMap;

use contracts::{
    Money, Sku,
    catalogue::{Product, ProductStatus},
    order_fulfillment::CancelReason,
};
use saga::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use customer::{CustomerStatus, object_to};

pub const MAX_LINES: usize = 100;

/// The status of an order
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum OrderStatus {
    Pending,
    Confirmed,
    Cancelled,
}

impl OrderStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            OrderStatus::Pending => "PENDING",
            OrderStatus::Confirmed => "CONFIRMED",
            OrderStatus::Cancelled => "CANCELLED",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [OrderStatus::Pending, OrderStatus::Confirmed, OrderStatus::Cancelled].into_iter().find(|s| s.as_str() == text)
    }
}

/// The reason of a cancellation: the code in its event, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    /// None when an earlier build, which stored no code, cancelled the order.
    pub reason: Option<CancelReason>,
    pub detail: String,
}

/// The number of units in a line: 1 to [`Quantity::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity(i64);

impl Quantity {
    pub const MAX: i64 = 1_000_000;

    pub fn new(units: i64) -> Option<Self> {
        (1..=Self::MAX).contains(&units).then_some(Quantity(units))
    }

    pub const fn units(self) -> i64 {
        self.0
    }
}

/// A requested line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PlaceOrderLine)]
pub struct WantedLine {
    pub sku: Sku,
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub quantity: i64,
}

/// A line with its price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PricedLine {
    pub sku: Sku,
    pub name: String,
    pub quantity: Quantity,
    pub unit_price: Money,
}

/// The lines of an order with their prices, and the total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priced {
    pub lines: Vec<PricedLine>,
    pub total: Money,
}

/// A reason why an order cannot be accepted: the part of the request, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    pub pointer: String,
    pub detail: String,
}

impl Objection {
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Objection { pointer: pointer.into(), detail: detail.into() }
    }
}

/// Prices the lines from order's own view of the catalogue; returns all objections at once.
pub fn price(wanted: &[WantedLine], catalogue: &HashMap<Sku, Product>) -> Result<Priced, Vec<Objection>> {
    let mut objections = Vec::new();
    if wanted.is_empty() || wanted.len() > MAX_LINES {
        objections
            .push(Objection::new("/lines", format!("An order has 1 to {MAX_LINES} lines, not {}.", wanted.len())));
    }
    let mut lines = Vec::with_capacity(wanted.len());
    for (place, line) in wanted.iter().enumerate() {
        match price_line(place, line, catalogue) {
            Ok(priced) => lines.push(priced),
            Err(objection) => objections.push(objection),
        }
    }
    if objections.is_empty() {
        match total(&lines) {
            Ok(total) => return Ok(Priced { lines, total }),
            Err(objection) => objections.push(objection),
        }
    }
    Err(objections)
}

fn price_line(place: usize, line: &WantedLine, catalogue: &HashMap<Sku, Product>) -> Result<PricedLine, Objection> {
    let Some(quantity) = Quantity::new(line.quantity) else {
        let detail = format!("A quantity is 1 to {}, not {}.", Quantity::MAX, line.quantity);
        return Err(Objection::new(format!("/lines/{place}/quantity"), detail));
    };
    let unknown = |detail: String| Objection::new(format!("/lines/{place}/sku"), detail);
    let product = catalogue.get(&line.sku).ok_or_else(|| unknown(format!("There is no product {}.", line.sku)))?;
    if product.status == ProductStatus::Discontinued {
        return Err(unknown(format!("{} is discontinued.", line.sku)));
    }
    Ok(PricedLine { sku: line.sku.clone(), name: product.name.clone(), quantity, unit_price: product.price })
}

fn total(lines: &[PricedLine]) -> Result<Money, Objection> {
    let mut sum: Option<Money> = None;
    for (place, line) in lines.iter().enumerate() {
        let objection = |e| Objection::new(format!("/lines/{place}"), format!("The order has no total: {e}."));
        let amount = line.unit_price.checked_times(line.quantity.units()).map_err(objection)?;
        sum = Some(match sum {
            None => amount,
            Some(sum) => sum.checked_add(amount).map_err(objection)?,
        });
    }
    sum.ok_or_else(|| Objection::new("/lines", "An order has at least one line."))
}

/// Whether a confirmation or cancellation applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Apply,
    /// Too late, for this reason; nothing changes.
    Skip(&'static str),
}

/// The paid amount differs from the order's total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} {} was paid for an order that costs {} {}", .paid.amount, .paid.currency, .total.amount, .total.currency)]
pub struct WrongAmount {
    paid: Money,
    total: Money,
}

/// Payment charges the amount that inventory forwards, so order checks that it is the order's total.
pub fn paid_in_full(paid: Money, total: Money) -> Result<(), WrongAmount> {
    if paid == total { Ok(()) } else { Err(WrongAmount { paid, total }) }
}

/// Whether a paid order is confirmed: only while nothing else has ended it.
pub fn confirm(order: OrderStatus, saga: Option<Status>) -> Ending {
    match (order, saga) {
        (OrderStatus::Pending, Some(Status::InProgress)) => Ending::Apply,
        (OrderStatus::Pending, _) => Ending::Skip("the saga has timed out or ended"),
        (OrderStatus::Confirmed, _) => Ending::Skip("the order is confirmed already"),
        (OrderStatus::Cancelled, _) => Ending::Skip("the order was cancelled first"),
    }
}

/// Whether an order is cancelled for a refusal or a timeout: never once it is confirmed.
pub fn cancel(order: OrderStatus, saga: Option<Status>) -> Ending {
    match (order, saga) {
        (OrderStatus::Pending, Some(Status::Started | Status::InProgress | Status::TimedOut)) => Ending::Apply,
        (OrderStatus::Pending, _) => Ending::Skip("the saga has ended"),
        (OrderStatus::Confirmed, _) => Ending::Skip("the order is confirmed already"),
        (OrderStatus::Cancelled, _) => Ending::Skip("the order is cancelled already"),
    }
}

/// The outcome of a customer's request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelRequest {
    Apply,
    /// It is cancelled already; the answer is the same.
    Unchanged,
    /// Its saga is purged, so it cannot be compensated.
    TooOld,
    /// A step after the pivot is done, which has no compensation.
    TooLate,
}

/// A customer may cancel while the order is pending, and after it was confirmed, until a step after the pivot is done.
pub fn cancel_on_request(order: OrderStatus, saga: Option<Status>, past_pivot: bool) -> CancelRequest {
    match (order, saga) {
        (OrderStatus::Cancelled, _) => CancelRequest::Unchanged,
        (_, None) => CancelRequest::TooOld,
        (OrderStatus::Confirmed, Some(_)) if past_pivot => CancelRequest::TooLate,
        (OrderStatus::Pending | OrderStatus::Confirmed, Some(_)) => CancelRequest::Apply,
    }
}

/// The action for a saga whose compensation deadline has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverdueAction {
    /// It timed out, and its order is not cancelled yet.
    Cancel,
    /// The last cancellation is not yet delivered to a participant that owes a receipt; another one would not arrive sooner.
    Wait,
    /// Receipts are missing: the cancellation is published again.
    Retry,
    /// The retries are exhausted; operator action required.
    GiveUp,
}

/// The action for an overdue saga that was retried `attempts` times, and whose last cancellation may be `under_way`.
pub fn overdue_action(saga: Option<Status>, under_way: bool, attempts: u16, max_attempts: u16) -> OverdueAction {
    match saga {
        Some(Status::TimedOut) => OverdueAction::Cancel,
        _ if under_way => OverdueAction::Wait,
        _ if attempts >= max_attempts => OverdueAction::GiveUp,
        _ => OverdueAction::Retry,
    }
}

/// Whether an operator may retry the compensation without waiting for its deadline.
pub fn may_resume(saga: Status) -> bool {
    matches!(saga, Status::Failed | Status::Compensating)
}

#[cfg(test)]
mod tests {
    use contracts::Currency;
    use proptest::prelude::*;

    use super::*;

    fn sku(text: &str) -> Sku {
        Sku::try_from(text.to_owned()).expect("a SKU")
    }

    fn catalogue(price: i64) -> HashMap<Sku, Product> {
        let product = |name: &str, price: Money, status| Product {
            sku: sku(name),
            name: name.to_lowercase(),
            category: None,
            price,
            status,
            version: 1,
        };
        let usd = |amount| Money::new(amount, Currency::USD);
        let eur = Money::new(100, "EUR".parse().expect("a currency"));
        [
            product("A", usd(price), ProductStatus::Active),
            product("B", usd(250), ProductStatus::Active),
            product("EURO", eur, ProductStatus::Active),
            product("OLD", usd(1), ProductStatus::Discontinued),
        ]
        .into_iter()
        .map(|p| (p.sku.clone(), p))
        .collect()
    }

    fn line(name: &str, quantity: i64) -> WantedLine {
        WantedLine { sku: sku(name), quantity }
    }

    proptest! {
        #[test]
        fn a_total_is_the_exact_sum_of_its_lines(price_of_a in 0i64..1_000_000, quantities in prop::collection::vec(1i64..=1000, 1..100)) {
            let wanted: Vec<_> = quantities.iter().map(|q| line("A", *q)).collect();
            let priced = price(&wanted, &catalogue(price_of_a)).expect("acceptable");
            prop_assert_eq!(priced.total.amount, price_of_a * quantities.iter().sum::<i64>());
        }

        #[test]
        fn no_order_makes_pricing_panic(price_of_a: i64, quantities in prop::collection::vec(any::<i64>(), 0..110)) {
            let wanted: Vec<_> = quantities.iter().map(|q| line("A", *q)).collect();
            let _ = price(&wanted, &catalogue(price_of_a));
        }
    }

    #[test]
    fn all_objections_are_reported_with_their_pointers() {
        let wanted = [line("A", 0), line("NOPE", 1), line("OLD", 1), line("B", 1)];
        let objections = price(&wanted, &catalogue(1)).expect_err("not acceptable");
        let pointers: Vec<_> = objections.iter().map(|o| o.pointer.as_str()).collect();
        assert_eq!(pointers, ["/lines/0/quantity", "/lines/1/sku", "/lines/2/sku"]);
    }

    #[test]
    fn currencies_do_not_mix_and_totals_do_not_overflow() {
        assert_eq!(price(&[line("A", 1), line("EURO", 1)], &catalogue(1)).expect_err("mixed")[0].pointer, "/lines/1");
        assert!(price(&[line("A", Quantity::MAX)], &catalogue(i64::MAX)).is_err());
        assert!(price(&[], &catalogue(1)).is_err());
    }

    #[test]
    fn an_order_is_paid_with_exactly_its_total() {
        let usd = |amount| Money::new(amount, Currency::USD);
        assert_eq!(paid_in_full(usd(500), usd(500)), Ok(()));
        let yen = Money::new(500, "JPY".parse().expect("a currency"));
        for paid in [usd(499), usd(501), yen] {
            assert!(paid_in_full(paid, usd(500)).is_err(), "{paid:?}");
        }
        let error = paid_in_full(yen, usd(500)).map_err(|e| e.to_string());
        assert_eq!(error, Err("500 JPY was paid for an order that costs 500 USD".to_owned()));
    }

    #[test]
    fn only_an_undelivered_or_exhausted_cancellation_is_not_retried() {
        for (attempts, overdue) in [(0, OverdueAction::Retry), (1, OverdueAction::GiveUp), (2, OverdueAction::GiveUp)] {
            let action = |status, under_way| overdue_action(Some(status), under_way, attempts, 1);
            assert_eq!(action(Status::TimedOut, false), OverdueAction::Cancel);
            assert_eq!(action(Status::Compensating, true), OverdueAction::Wait);
            assert_eq!(action(Status::Compensating, false), overdue);
        }
    }

    #[test]
    fn nothing_is_cancelled_after_the_pivot() {
        let request = |past_pivot| cancel_on_request(OrderStatus::Confirmed, Some(Status::Completed), past_pivot);
        assert_eq!((request(false), request(true)), (CancelRequest::Apply, CancelRequest::TooLate));
        let again = cancel_on_request(OrderStatus::Cancelled, Some(Status::Compensating), true);
        assert_eq!(again, CancelRequest::Unchanged);
    }

    #[test]
    fn an_order_is_confirmed_or_cancelled_never_both() {
        let orders = [OrderStatus::Pending, OrderStatus::Confirmed, OrderStatus::Cancelled];
        for order in orders {
            for saga in Status::ALL {
                let confirmed = confirm(order, Some(saga)) == Ending::Apply;
                let cancelled = cancel(order, Some(saga)) == Ending::Apply;
                assert!(!confirmed || order == OrderStatus::Pending);
                assert!(!cancelled || order == OrderStatus::Pending);
                if saga == Status::TimedOut {
                    assert!(!confirmed, "a timeout that was detected first wins");
                }
            }
        }
    }
}
