//! What a database that was set back has forgotten, with no more than the auditor's rights.

use console::{
    after_restore::{Report, after_restore},
    suite::{Addresses, Suite},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::whole_audit::{World, payment};

async fn find(world: &World) -> Report {
    let nobody = "http://127.0.0.1:1".to_owned();
    let suite = Suite::new(Addresses {
        order_url: nobody.clone(),
        inventory_url: nobody.clone(),
        payment_url: nobody,
        gateway_url: world.gateway.base_url.clone(),
        admin_token: String::new(),
    });
    after_restore(&world.stores(), &suite.expect("a client"), true).await.expect("it can be looked at")
}

/// An order of the sound suite, or one that is not there.
fn order(n: u8) -> String {
    format!("0000000a-0000-7000-8000-00000000000{n}")
}

fn told(order_id: &str) -> Value {
    json!({"order_id": order_id, "customer_id": "alice", "total": {"amount": 3_000, "currency": "USD"}, "lines": []})
}

#[tokio::test]
async fn a_database_that_was_never_set_back_has_forgotten_nothing() {
    let world = World::new().await;
    let report = find(&world).await;
    assert!(report.orders.is_empty() && report.left.is_empty() && report.products.is_empty(), "{report}");
}

#[tokio::test]
async fn what_streams_and_ledger_know_and_the_database_does_not_is_listed() {
    let world = World::new().await;
    let forgotten = order(8);
    world.tell("order", "OrderCreated", &told(&forgotten)).await;
    // The first is CONFIRMED in the database, the fourth CANCELLED.
    world.tell("order", "OrderCancelled", &told(&order(1))).await;
    world.tell("order", "OrderConfirmed", &told(&order(4))).await;
    let supply = json!({"sku": "LAMP", "quantity": 5});
    world.tell("inventory", "StockReplenished", &supply).await;
    let charge = |order: &str| json!({"amount": 3_000, "currency": "USD", "token": "tok_visa", "order_id": order});
    let key = payment(8);
    world.ask("charges", &key, &charge(&forgotten)).await;
    // Its saga is under way, and will find this.
    world.ask("charges", &payment(5), &charge(&order(5))).await;

    let report = find(&world).await;
    let ids = |orders: &[console::after_restore::ToldOrder]| -> Vec<String> {
        orders.iter().map(|order| order.order_id.to_string()).collect()
    };
    assert_eq!(ids(&report.orders), [forgotten.as_str()], "{report}");
    assert_eq!((ids(&report.uncancelled), ids(&report.unconfirmed)), (vec![order(1)], vec![order(4)]), "{report}");
    assert_eq!(report.products, [format!("StockReplenished {supply}")], "{report}");
    // Neither order nor payment answers here, so nothing is put right.
    assert_eq!(
        report.left,
        [format!("charge {key} for {forgotten}: 3000 USD"), format!("order {} was cancelled", order(1))],
        "{report}"
    );

    // As payment leaves it.
    world
        .change(&format!(
            "insert into payment.payment (payment_id, order_id, saga_id, amount, currency, method, status,
                gateway_reference, refunded_at, cancelled_at)
            values ('{key}', '{forgotten}', '{}', 3000, 'USD', 'forgotten', 'REFUNDED', 'x', now(), now());
            update orders.customer_order set status = 'CANCELLED', cancel_reason = 'again' where order_id = '{}'",
            Uuid::nil(),
            order(1)
        ))
        .await;
    let report = find(&world).await;
    assert!(report.left.is_empty() && report.orders.len() == 1, "{report}");
}
