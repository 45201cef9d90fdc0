//! Events that cannot be applied: the consumer goes on, and nothing is lost.

use std::time::Duration;

use anyhow::{Context, ensure};
use bootstrap::CancellationToken;
use contracts::{
    Currency, INVENTORY, Money, ORDER, OrderId, Sku,
    catalogue::{Product, ProductCreated, ProductStatus},
    order_fulfillment::{StockReservationFailed, StockReserved},
};
use messaging::{Batch, Committed, Outbox, StepError, subscribe};
use saga::{Event, EventType, Kind, StepOn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use suite_tests::{Forged, Participants, TestSuite};
use testkit::eventually;
use uuid::Uuid;

use crate::Test;

/// Why no test of this file audits.
const UNAUDITED: &str = "events are made up, with no order behind them, and dead letters are left";

pub(crate) fn product(sku: &str) -> ProductCreated {
    ProductCreated {
        product: Product {
            sku: Sku::try_from(sku.to_owned()).unwrap(),
            name: sku.to_owned(),
            category: None,
            price: contracts::Money::new(1, contracts::Currency::USD),
            status: ProductStatus::Active,
            version: 1,
        },
    }
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn one_poison_in_a_batch_of_fifty_is_one_dead_letter() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    suite.pause(&order, "project_product_created").await?;
    for n in 0..50 {
        let event = product(&format!("P-{n}"));
        let mut forged = Forged::new(INVENTORY, Uuid::now_v7(), &event);
        if n == 20 {
            // Readable, but the view's check constraint refuses the text.
            let mut poison = product("POISON");
            poison.product.name = "nul \u{0} in a text".to_owned();
            forged = forged.body(serde_json::to_vec(&poison)?);
        }
        if n == 30 {
            forged = forged.body("not JSON at all");
        }
        if n == 40 {
            forged = forged.header("ce-type", "ProductCreated.v9");
        }
        suite.publish(&forged).await?;
    }
    suite.resume(&order, "project_product_created").await?;
    let applied = "select count(*) from orders.product_view";
    suite.becomes(applied, 47).await?;
    let dead = eventually(Duration::from_secs(20), async || {
        suite.end_the_wait_for_newer_replicas().await?;
        let dead = order.client.get("/api/admin/dlq?step=project_product_created").await?.expect(200)?;
        ensure!(dead["items"].as_array().is_some_and(|items| items.len() == 3), "{dead:#}");
        anyhow::Ok(Some(dead))
    })
    .await?;
    let mut reasons: Vec<_> = dead["items"].as_array().unwrap().iter().map(|d| d["reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    ensure!(reasons == ["attempts exhausted", "undecodable", "unknown version"], "{reasons:?}");
    let raw = dead["items"].as_array().unwrap().iter().find(|d| d["reason"] == "undecodable").unwrap();
    ensure!(raw["payload"] == "not JSON at all", "the raw bytes are kept");
    Ok(())
}

/// As a newer build of inventory would publish a product.
#[derive(Debug, Serialize, Deserialize)]
struct NewerProductCreated {
    sku: String,
}

impl Event for NewerProductCreated {
    const TYPE: EventType = EventType { version: 2, ..ProductCreated::TYPE };

    fn aggregate_id(&self) -> String {
        self.sku.clone()
    }
}

/// As a newer build of order writes it.
static NEWER_STEP: StepOn<NewerProductCreated> =
    StepOn::new(0, "project_product_created", ORDER, &[], Kind::Projection);

async fn take(outbox: Outbox, batch: Batch<NewerProductCreated>) -> Result<Committed, StepError> {
    outbox.claim(batch).await?.0.commit().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_of_a_newer_version_is_left_to_a_newer_replica() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    let newer = NewerProductCreated { sku: "A".to_owned() };
    for _ in 0..20 {
        suite.publish(&Forged::new(INVENTORY, Uuid::now_v7(), &newer)).await?;
    }
    let waiting =
        "select count(*) from orders.delivery_attempt where attempts = 0 and last_error like '%ProductCreated.v2%'";
    suite.becomes(waiting, 20).await?;
    let newer = subscribe(&order.app.participant().outbox, &NEWER_STEP, take);
    let stop = CancellationToken::new();
    let running = tokio::spawn(order.consumer(newer, INVENTORY).run(stop.clone()));
    let processed = "select count(*) from orders.inbox";
    suite.becomes(processed, 20).await?;
    stop.cancel();
    running.await?;
    ensure!(suite.number("select count(*) from orders.dead_letter").await? == 0);
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_no_replica_can_read_becomes_a_dead_letter() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    let processed = Forged::new(INVENTORY, Uuid::now_v7(), &product("A"));
    suite.publish(&processed).await?;
    let applied = "select count(*) from orders.inbox";
    suite.becomes(applied, 1).await?;
    let unprocessed = Forged::new(INVENTORY, Uuid::now_v7(), &product("B")).header("ce-type", "ProductCreated.v9");
    // An event type unknown to this build, as when a newer build has another trigger for the step.
    let of_another_type = Forged::new(INVENTORY, Uuid::now_v7(), &product("C")).header("ce-type", "ProductListed.v1");
    for forged in [&processed.clone().header("ce-type", "ProductCreated.v9"), &unprocessed, &of_another_type] {
        suite.publish(forged).await?;
    }
    let waiting = "select count(*) from orders.delivery_attempt where attempts = 0";
    suite.becomes(waiting, 2).await?;
    ensure!(suite.number("select count(*) from orders.dead_letter").await? == 0, "it did not wait for a newer replica");
    suite.end_the_wait_for_newer_replicas().await?;
    eventually(Duration::from_secs(20), async || {
        let consumers = order.client.get("/api/admin/consumers").await?.expect(200)?;
        let consumer =
            consumers["items"].as_array().into_iter().flatten().find(|c| c["step"] == "project_product_created");
        ensure!(consumer.is_some_and(|consumer| consumer["in_flight"] == 0 && consumer["lag"] == 0), "{consumers:#}");
        anyhow::Ok(())
    })
    .await?;
    let mut dead_lettered: Vec<Uuid> =
        sqlx::query_scalar("select event_id from orders.dead_letter where reason = 'unknown version'")
            .fetch_all(&suite.pool)
            .await?;
    dead_lettered.sort_unstable();
    ensure!(dead_lettered == [unprocessed.event_id, of_another_type.event_id], "{dead_lettered:?}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_of_an_unknown_order_changes_nothing() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    let event = StockReservationFailed { order_id: OrderId::new(), reason: "none".to_owned(), shortages: Vec::new() };
    let forged = Forged::new(INVENTORY, Uuid::now_v7(), &event);
    suite.publish(&forged).await?;
    let processed = "select count(*) from orders.inbox";
    suite.becomes(processed, 1).await?;
    ensure!(order.client.get("/api/admin/dlq/count").await?.body["count"] == 0);
    ensure!(suite.number("select count(*) from orders.outbox_published").await? == 0);
    Ok(())
}

/// An order of 5.00 whose reservation is paused.
async fn waiting_order(suite: &TestSuite, participants: &Participants) -> anyhow::Result<(OrderId, Uuid, Value)> {
    participants.sell("A", 500, 10).await?;
    suite.pause(&participants.inventory, "reserve_stock").await?;
    let order = participants.place(&[("A", 1)], "tok_visa").await?;
    let id = |name: &str| order[name].as_str().unwrap().parse::<Uuid>();
    Ok((OrderId(id("order_id")?), id("saga_id")?, order))
}

/// The payment is parked, and the order goes on to its deadline or, here, to its cancellation by the customer.
async fn parked_and_undone(suite: &TestSuite, participants: &Participants, order: &Value) -> Test {
    let letter = eventually(Duration::from_secs(20), async || {
        let letters = participants.order.client.get("/api/admin/dlq?step=confirm_order").await?.expect(200)?;
        let status = participants.order(order).await?["status"].clone();
        letters["items"].get(0).cloned().map(Some).with_context(|| format!("nothing is parked, the order is {status}"))
    })
    .await?;
    ensure!(letter["reason"] == "poison" && letter["attempts"] == 1, "{letter:#}");
    ensure!(letter["error_chain"].as_str().is_some_and(|chain| chain.contains("500 USD")), "{letter:#}");
    let breaker = participants.order.breaker("confirm_order").await?;
    ensure!(breaker["state"] == "closed" && breaker["failures"] == 0, "{breaker:#}");
    ensure!(participants.order(order).await?["status"] == "PENDING");
    let replay = format!("/api/admin/dlq/{}/replay", letter["id"].as_str().unwrap());
    let again = participants.order.client.post(&replay, &json!({"reason": "hoping"})).await?.expect(200)?;
    ensure!(again["status"] == "PENDING", "a replay let it through: {again:#}");
    suite.resume(&participants.inventory, "reserve_stock").await?;
    ensure!(participants.cancel(order).await? == 202);
    participants.saga_becomes(order, "COMPENSATED").await?;
    let totals = suite.gateway_client().get("/v1/totals").await?.expect(200)?;
    ensure!(totals["totals"].as_array().unwrap().iter().all(|t| t["charged"] == t["refunded"]), "{totals}");
    Ok(())
}

/// Payment gets a forged event with this amount.
async fn is_not_confirmed_when_charged(total: Money) -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    let (order_id, saga_id, order) = waiting_order(&suite, &participants).await?;
    let event = StockReserved {
        order_id,
        customer_id: "alice".to_owned(),
        total,
        payment_method: "tok_visa".to_owned(),
        lines: Vec::new(),
    };
    suite.publish(&Forged::new(INVENTORY, saga_id, &event)).await?;
    parked_and_undone(&suite, &participants, &order).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_order_that_is_charged_a_cent_is_not_confirmed() -> Test {
    is_not_confirmed_when_charged(Money::new(1, Currency::USD)).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_order_that_is_paid_in_another_currency_is_not_confirmed() -> Test {
    is_not_confirmed_when_charged(Money::new(500, "JPY".parse()?)).await
}
