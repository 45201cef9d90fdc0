use contracts::Currency;
use proptest::{collection::vec, prelude::*};

use super::*;

fn sku(name: &str) -> Sku {
    Sku::try_from(name.to_owned()).expect("a SKU")
}

fn item(name: &str, available: i64) -> StockedProduct {
    StockedProduct {
        product: Product {
            sku: sku(name),
            name: format!("Product {name}"),
            category: None,
            price: Money::new(1_999, Currency::USD),
            status: ProductStatus::Active,
            version: 1,
        },
        stock: Stock { available, reserved: 0, supplied: available },
        updated_at: OffsetDateTime::UNIX_EPOCH,
    }
}

fn discontinued(name: &str, available: i64) -> StockedProduct {
    let mut item = item(name, available);
    item.product.status = ProductStatus::Discontinued;
    item
}

fn lines(of: &[(&str, i64)]) -> Vec<OrderLine> {
    let unit_price = Money::new(1_999, Currency::USD);
    of.iter().map(|(name, quantity)| OrderLine { sku: sku(name), quantity: *quantity, unit_price }).collect()
}

fn wanted(of: &[(&str, i64)]) -> Wanted {
    Wanted::of(&lines(of)).expect("a usable order")
}

fn held(decision: &Decision) -> &[StockLine] {
    match decision {
        Decision::Reserved(lines) => lines,
        Decision::Refused { .. } => &[],
    }
}

/// The products after the decisions.
fn after(products: &[StockedProduct], decisions: &[Decision]) -> Vec<StockedProduct> {
    let taken = total(decisions.iter().flat_map(held));
    let mut products = products.to_vec();
    for item in &mut products {
        let units = taken.get(&item.product.sku).copied().unwrap_or(0);
        item.stock = Stock {
            available: item.stock.available - units,
            reserved: item.stock.reserved + units,
            supplied: item.stock.supplied,
        };
    }
    products
}

#[test]
fn lines_of_one_sku_are_summed_and_reserved_as_one() {
    let decisions = reserve(&[wanted(&[("B", 1), ("A", 2), ("B", 3)])], &[item("A", 2), item("B", 4)]);
    let expected = [("A", 2), ("B", 4)].map(|(name, quantity)| StockLine { sku: sku(name), quantity });
    assert_eq!(decisions, [Decision::Reserved(expected.to_vec())]);
    let refused = reserve(&[wanted(&[("B", 1), ("B", 3)])], &[item("B", 3)]);
    assert!(held(&refused[0]).is_empty(), "each line could be filled alone, the sum cannot");
}

#[test]
fn a_refusal_names_every_shortage_and_takes_nothing() {
    let products = [item("A", 1), discontinued("OLD", 9), item("PLENTY", 9)];
    let orders = [wanted(&[("PLENTY", 9), ("A", 3), ("OLD", 1), ("NEVER", 2)]), wanted(&[("PLENTY", 9)])];
    let decisions = reserve(&orders, &products);
    let shortage = |name, requested, available| Shortage { sku: sku(name), requested, available };
    let Decision::Refused { reason, shortages } = &decisions[0] else { panic!("not refused: {decisions:?}") };
    assert_eq!(shortages, &[shortage("A", 3, 1), shortage("NEVER", 2, 0), shortage("OLD", 1, 0)]);
    assert_eq!(reason, "A is out of stock: 3 wanted, 1 available (and 2 more)");
    assert_eq!(held(&decisions[1]).len(), 1, "the refused order changed nothing");
}

#[test]
fn the_first_order_gets_the_last_unit() {
    let orders = [wanted(&[("A", 1)]), wanted(&[("A", 1)])];
    let decisions = reserve(&orders, &[item("A", 1)]);
    assert_eq!(decisions.iter().map(|d| held(d).len()).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn an_invalid_order_is_unusable() {
    assert_eq!(Wanted::of(&[]), Err(UnusableOrder::NoLines));
    for quantity in [0, -1, i64::MIN] {
        assert_eq!(Wanted::of(&lines(&[("A", quantity)])), Err(UnusableOrder::Quantity { sku: sku("A"), quantity }));
    }
    let twice = lines(&[("A", i64::MAX), ("A", 1)]);
    assert_eq!(Wanted::of(&twice), Err(UnusableOrder::Overflow { sku: sku("A") }));
}

#[test]
fn only_a_reservation_releases_lines() {
    for status in ReservationStatus::ALL {
        let holds = status == ReservationStatus::Reserved;
        let line = StockLine { sku: sku("A"), quantity: 2 };
        let lines = if holds { vec![line] } else { Vec::new() };
        let order_id = Uuid::nil();
        let mut reservation = Reservation { order_id, saga_id: Uuid::nil(), status, version: 7, held: lines.clone() };
        assert_eq!(reservation.release(), lines);
        assert_eq!(reservation.release(), [], "a second release is empty");
        assert_eq!(reservation.version, 9);
        let ended = if holds { ReservationStatus::Released } else { status };
        assert_eq!(reservation.status, ended);
        assert_eq!(ReservationStatus::parse(status.as_str()), Some(status));
    }
}

#[test]
fn changes_of_price_and_of_details_are_distinguished() {
    let product = item("A", 1).product;
    let price = Some(Money::new(2_999, Currency::USD));
    let name = Some("Another name".to_owned());
    let status = Some(ProductStatus::Discontinued);
    assert_eq!(change(&product, Changes::default()), Changed::Nothing);
    assert_eq!(change(&product, Changes { price: Some(product.price), ..Changes::default() }), Changed::Nothing);
    let both = change(&product, Changes { price, name: name.clone(), status: None });
    assert!(matches!(both, Changed::Price(p) if p.version == 2 && p.name == "Another name" && Some(p.price) == price));
    let details = change(&product, Changes { price: None, name, status });
    assert!(
        matches!(details, Changed::Details(p) if p.version == 2 && p.price == product.price && Some(p.status) == status)
    );
}

#[test]
fn a_supply_is_counted_exactly_or_refused() {
    let supplied = supply(&item("A", 5), 1_000).expect("fits");
    assert_eq!(supplied.stock, Stock { available: 1_005, reserved: 0, supplied: 1_005 });
    assert_eq!(supplied.product.version, 2);
    let full = StockedProduct {
        stock: Stock { available: 0, reserved: i64::MAX - 1, supplied: i64::MAX - 1 },
        ..item("A", 0)
    };
    assert!(supply(&full, 1).is_ok());
    assert!(supply(&full, 2).is_err());
}

const NAMES: [&str; 5] = ["A", "B", "C", "OLD", "NEVER"];

fn any_order() -> impl Strategy<Value = Wanted> {
    let line = (prop::sample::select(NAMES.to_vec()), 1i64..6);
    vec(line, 1..4).prop_map(|lines| wanted(&lines))
}

fn any_products() -> impl Strategy<Value = Vec<StockedProduct>> {
    (0i64..12, 0i64..12, 0i64..12)
        .prop_map(|(a, b, c)| vec![item("A", a), item("B", b), item("C", c), discontinued("OLD", 50)])
}

proptest! {
    #[test]
    fn stock_is_conserved_and_never_negative(orders in vec(any_order(), 0..20), products in any_products()) {
        let decisions = reserve(&orders, &products);
        prop_assert_eq!(decisions.len(), orders.len());
        for StockedProduct { stock, product, .. } in after(&products, &decisions) {
            prop_assert!(stock.available >= 0);
            prop_assert_eq!(stock.available + stock.reserved, stock.supplied);
            prop_assert!(product.status == ProductStatus::Active || stock.reserved == 0);
        }
    }

    #[test]
    fn a_batch_decides_like_single_orders(orders in vec(any_order(), 0..20), products in any_products()) {
        let mut left = products.clone();
        let mut one_by_one = Vec::new();
        for order in &orders {
            let decision = reserve(std::slice::from_ref(order), &left);
            left = after(&left, &decision);
            one_by_one.extend(decision);
        }
        prop_assert_eq!(reserve(&orders, &products), one_by_one);
    }

    #[test]
    fn an_order_gets_all_lines_or_none_and_refusals_are_correct(
        orders in vec(any_order(), 0..20), products in any_products()
    ) {
        let mut left = products.clone();
        for (order, decision) in orders.iter().zip(reserve(&orders, &products)) {
            match &decision {
                Decision::Reserved(lines) => prop_assert_eq!(&total(lines), &order.0),
                Decision::Refused { shortages, .. } => {
                    prop_assert!(!shortages.is_empty());
                    for short in shortages {
                        let active = left.iter().find(|p| p.product.sku == short.sku && p.product.status == ProductStatus::Active);
                        prop_assert_eq!(short.available, active.map_or(0, |p| p.stock.available));
                        prop_assert!(short.available < short.requested);
                    }
                }
            }
            left = after(&left, &[decision]);
        }
    }

    #[test]
    fn a_release_restores_the_stock(orders in vec(any_order(), 0..20), products in any_products()) {
        let decisions = reserve(&orders, &products);
        let reserved = after(&products, &decisions);
        let released: Vec<StockLine> = decisions.iter().flat_map(|decision| {
            let status = ReservationStatus::Reserved;
            Reservation { order_id: Uuid::nil(), saga_id: Uuid::nil(), status, version: 1, held: held(decision).to_vec() }.release()
        }).collect();
        let units = total(&released);
        for (before, now) in products.iter().zip(reserved) {
            let back = units.get(&now.product.sku).copied().unwrap_or(0);
            prop_assert_eq!(now.stock.available + back, before.stock.available);
            prop_assert_eq!(now.stock.reserved - back, before.stock.reserved);
        }
    }
}
