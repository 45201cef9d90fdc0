//! `after-restore` with the auditor's permissions.

use console::{
    after_restore::{self, OrderSummary, Report},
    suite::{Addresses, ParticipantUrls, Suite},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::whole_audit::{World, payment};

async fn list(world: &World) -> Report {
    after_restore::list(&world.stores(), &suite(world)).await.expect("it can be read")
}

/// Uses the list as written to a file. Neither order nor payment runs here, so no repair succeeds.
async fn refund(world: &World, listed: &Report) -> Report {
    let file = serde_json::to_string(listed).expect("JSON");
    let listed = serde_json::from_str(&file).expect("a list");
    after_restore::refund(&world.stores(), &suite(world), listed).await.expect("it can be read")
}

fn suite(world: &World) -> Suite {
    let suite = Suite::new(Addresses {
        participants: ParticipantUrls::new(|_| "http://127.0.0.1:1".to_owned()),
        gateway_url: world.gateway.base_url.clone(),
        admin_token: String::new(),
    });
    suite.expect("a client")
}

/// An order of the sound suite, or a missing one.
fn order(n: u8) -> String {
    format!("0000000a-0000-7000-8000-00000000000{n}")
}

fn event(order_id: &str) -> Value {
    json!({"order_id": order_id, "customer_id": "alice", "total": {"amount": 3_000, "currency": "USD"}, "lines": []})
}

fn ids(orders: &[OrderSummary]) -> Vec<String> {
    orders.iter().map(|order| order.order_id.to_string()).collect()
}

#[tokio::test]
async fn a_database_that_was_never_restored_has_forgotten_nothing() {
    let world = World::new().await;
    let report = list(&world).await;
    assert!(report.orders.is_empty() && report.left.is_empty() && report.products.is_empty(), "{report}");
}

#[tokio::test]
async fn what_the_restored_database_does_not_know_is_listed() {
    let world = World::new().await;
    let forgotten = order(8);
    world.publish_unknown("order", "OrderCreated", &event(&forgotten)).await;
    // The first is CONFIRMED in the database, the fourth CANCELLED.
    world.publish_unknown("order", "OrderCancelled", &event(&order(1))).await;
    world.publish_unknown("order", "OrderConfirmed", &event(&order(4))).await;
    let supply = json!({"sku": "LAMP", "quantity": 5});
    world.publish_unknown("inventory", "StockReplenished", &supply).await;
    let charge = |order: &str| json!({"amount": 3_000, "currency": "USD", "token": "tok_visa", "order_id": order});
    let key = payment(8);
    world.call_gateway("charges", &key, &charge(&forgotten)).await;
    // Its saga is in flight and will find this charge.
    world.call_gateway("charges", &payment(5), &charge(&order(5))).await;

    let listed = list(&world).await;
    for stream in ["ORDER", "INVENTORY", "PAYMENT"] {
        world.age_out(stream, 100).await;
    }
    // The recreated streams are empty.
    for report in [&listed, &refund(&world, &listed).await] {
        assert_eq!(ids(&report.orders), [forgotten.as_str()], "{report}");
        assert_eq!((ids(&report.uncancelled), ids(&report.unconfirmed)), (vec![order(1)], vec![order(4)]), "{report}");
        assert_eq!(report.products, [format!("StockReplenished {supply}")], "{report}");
        assert_eq!(
            report.left,
            [format!("charge {key} for {forgotten}: 3000 USD"), format!("order {} was cancelled", order(1))],
            "{report}"
        );
    }

    // The repairs of payment and order.
    world
        .change(&format!(
            "insert into payment.payment (payment_id, order_id, saga_id, amount, currency, method, status,
                gateway_reference, refunded_at, cancelled_at)
            values ('{key}', '{forgotten}', '{}', 3000, 'USD', 'forgotten', 'REFUNDED', 'x', now(), now());
            update orders.customer_order set status = 'CANCELLED', cancel_reason = 'again' where order_id = '{}';
            update orders.customer_order set status = 'CONFIRMED', cancel_reason = null where order_id = '{}'",
            Uuid::nil(),
            order(1),
            order(4)
        ))
        .await;
    let report = refund(&world, &listed).await;
    assert!(report.left.is_empty() && report.unconfirmed.is_empty() && report.orders.len() == 1, "{report}");
}

/// The ledger has the refund even if the streams do not.
#[tokio::test]
async fn an_order_whose_charge_was_refunded_is_cancelled_again() {
    let world = World::new().await;
    let charge_id = world.charge(&payment(1), "USD").await;
    world.call_gateway(&format!("charges/{charge_id}/refund"), "", &Value::Null).await;
    let left = [format!("order {} was cancelled", order(1))];
    let listed = list(&world).await;
    assert_eq!((ids(&listed.uncancelled), listed.left.as_slice()), (vec![order(1)], left.as_slice()), "{listed}");
    world.publish_unknown("order", "OrderCancelled", &event(&order(1))).await;
    let listed = list(&world).await;
    assert_eq!(listed.left, left, "{listed}");
}

#[tokio::test]
async fn a_stream_that_begins_after_the_restored_moment_is_a_gap() {
    let world = World::new().await;
    world.publish_unknown("order", "OrderCreated", &event(&order(8))).await;
    world.publish_unknown("order", "OrderCreated", &event(&order(9))).await;
    let gap = ["stream ORDER begins after the restored moment: what was published before is not listed".to_owned()];
    // The database knows of the first two.
    for (first, gaps) in [(3, [].as_slice()), (4, &gap), (5, &gap)] {
        world.age_out("ORDER", first).await;
        let listed = list(&world).await;
        assert_eq!(
            (listed.left.as_slice(), listed.orders.len()),
            (gaps, usize::try_from(5 - first).expect("few")),
            "{first}: {listed}"
        );
        let report = refund(&world, &listed).await;
        assert_eq!(report.left, gaps, "{first}: {report}");
    }
}

#[tokio::test]
async fn a_recreated_stream_is_a_gap() {
    let world = World::new().await;
    world.change("update orders.relay_lease set stream_epoch = stream_epoch - 1").await;
    let listed = list(&world).await;
    assert_eq!(
        listed.left,
        ["stream ORDER begins after the restored moment: what was published before is not listed"],
        "{listed}"
    );
}

#[tokio::test]
async fn an_undecodable_event_is_a_gap_and_the_others_are_listed() {
    let world = World::new().await;
    world.publish_unknown("order", "OrderCancelled", &json!({})).await;
    world.publish_unknown("order", "OrderCreated", &event(&order(8))).await;
    let listed = list(&world).await;
    assert_eq!(ids(&listed.orders), [order(8)], "{listed}");
    let unread = "message 3 of stream ORDER, OrderCancelled, cannot be read: missing field `order_id`";
    assert!(listed.left.len() == 1 && listed.left[0].starts_with(unread), "{listed}");
}
