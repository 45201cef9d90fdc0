//! The card processor must accept every request for an order that was accepted: it may decline the card, never the request.

use proptest::{
    prelude::{Strategy, any, prop_oneof},
    strategy::BoxedStrategy,
};

use super::dice::{self, Dice};
use crate::prelude::*;

/// Products at every price level, in currencies with and without minor units: SKU, price, currency.
const PRODUCTS: [(&str, i64, &str); 6] = [
    ("!", 1, "USD"),
    ("~~~", 999_999, "EUR"),
    ("'\"\\", 1_000_001, "JPY"),
    ("%00", 90_000_000_000, "KWD"),
    ("{}", i64::MAX / 1_000_000, "CLF"),
    ("<script>", i64::MAX, "CHF"),
];

#[suite_tests::test]
async fn accepted_orders_make_valid_charges() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    sell_all(&participants).await?;
    let mut dice = Dice::new();
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..dice::cases(250) {
        let answer = participants.order.client.post("/api/orders", &dice.throw(&order())).await?;
        match answer.status {
            201 => accepted += 1,
            422 => refused += 1,
            _ => anyhow::bail!("{answer:?}"),
        }
    }
    ensure!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused: this proves little");
    suite.all_ended().await?;
    let scrape = Scrape::of(&suite.gateway_client()).await?;
    let charges = scrape.samples("http_server_requests_total", &[("route", "/v1/charges")]);
    let statuses: Vec<_> = charges.map(|sample| sample.labels["status"].as_str()).collect();
    ensure!(statuses.contains(&"402"), "{statuses:?}");
    ensure!(statuses.iter().all(|status| ["200", "201", "402"].contains(status)), "{statuses:?}");
    let breaker = participants.payment.breaker("process_payment").await?;
    ensure!(breaker["state"] == "closed" && breaker["failures"] == 0, "{breaker:#}");
    suite.nothing_was_counted().await?;
    suite.audit().await
}

async fn sell_all(participants: &Participants) -> Test {
    for (sku, price, currency) in PRODUCTS {
        let price = json!({"amount": price, "currency": currency});
        let product = json!({"sku": sku, "name": sku, "initial_quantity": 1_000_000_000, "price": price});
        participants.inventory.client.post("/api/products", &product).await?.expect(201)?;
    }
    participants.order.client.until_items("/api/products", PRODUCTS.len()).await.map(drop)
}

fn order() -> BoxedStrategy<Value> {
    let quantity = prop_oneof![3 => 1_i64..4, 1 => 1_i64..=1_000_000];
    let line =
        move |sku: &'static str| quantity.clone().prop_map(move |quantity| json!({"sku": sku, "quantity": quantity}));
    let lines = proptest::sample::select(PRODUCTS.to_vec())
        .prop_flat_map(move |(sku, ..)| proptest::collection::vec(line(sku), 1..4));
    (name(), lines, name())
        .prop_map(|(customer, lines, card)| json!({"customer_id": customer, "lines": lines, "payment_method": card}))
        .boxed()
}

/// Names of every length up to more than is allowed, in characters of one to four bytes, and malicious texts.
fn name() -> BoxedStrategy<String> {
    let cards = ["tok_visa", "tok_declined", "tok_expired", "tok_insufficient_funds"];
    let letter = proptest::sample::select(vec!["x", "é", "\u{20ac}", "\u{1f4b3}"]);
    prop_oneof![
        2 => proptest::sample::select(cards.map(str::to_owned).to_vec()),
        3 => (letter, 1_usize..=130).prop_map(|(letter, length)| letter.repeat(length)),
        2 => proptest::collection::vec(any::<char>(), 1..=130).prop_map(String::from_iter),
        1 => dice::text(),
    ]
    .boxed()
}
