//! Events that cannot be applied: the consumer goes on, and nothing is lost.

use bootstrap::CancellationToken;
use contracts::{
    Currency, Money, OrderId, Sku,
    catalogue::{Product, ProductCreated, ProductStatus},
    order_fulfillment::{StockReservationFailed, StockReserved},
};
use messaging::{Batch, Committed, Outbox, StepError, subscribe};
use saga::{Event, EventType, Kind, StepOn};
use serde::{Deserialize, Serialize};

use crate::prelude::*;

/// Why no test of this file audits.
const UNAUDITED: &str = "events are made up, with no order behind them, and dead letters are left";

pub(crate) fn product(sku: &str) -> ProductCreated {
    ProductCreated {
        product: Product {
            sku: Sku::try_from(sku.to_owned()).unwrap(),
            name: sku.to_owned(),
            category: None,
            price: Money::new(1, Currency::USD),
            status: ProductStatus::Active,
            version: 1,
        },
    }
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn one_poison_in_a_batch_of_fifty_is_one_dead_letter() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    suite.pause(&order, "project_product_created").await?;
    // Readable, but the view's check constraint refuses the text.
    let mut poison = product("POISON");
    poison.product.name = "nul \u{0} in a text".to_owned();
    for n in 0..50 {
        let forged = Forged::new(INVENTORY, Uuid::now_v7(), &product(&format!("P-{n}")));
        let forged = match n {
            20 => forged.body(serde_json::to_vec(&poison)?),
            30 => forged.body("not JSON at all"),
            40 => forged.header("ce-type", "ProductCreated.v9"),
            _ => forged,
        };
        suite.publish(&forged).await?;
    }
    suite.resume(&order, "project_product_created").await?;
    suite.becomes("select count(*) from orders.product_view", 47).await?;
    let dead = eventually(async || {
        suite.end_the_wait_for_newer_replicas().await?;
        let dead = order.client.items("/api/admin/dlq?step=project_product_created").await?;
        ensure!(dead.len() == 3, "{dead:#?}");
        anyhow::Ok(Some(dead))
    })
    .await?;
    let mut reasons: Vec<_> = dead.iter().map(|d| d["reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    ensure!(reasons == ["attempts exhausted", "undecodable", "unknown version"], "{reasons:?}");
    let raw = dead.iter().find(|d| d["reason"] == "undecodable").unwrap();
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
    suite.becomes("select count(*) from orders.inbox", 20).await?;
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
    suite.becomes("select count(*) from orders.inbox", 1).await?;
    let unprocessed = Forged::new(INVENTORY, Uuid::now_v7(), &product("B")).header("ce-type", "ProductCreated.v9");
    // An event type unknown to this build, as when a newer build has another trigger for the step.
    let of_another_type = Forged::new(INVENTORY, Uuid::now_v7(), &product("C")).header("ce-type", "ProductListed.v1");
    for forged in [&processed.clone().header("ce-type", "ProductCreated.v9"), &unprocessed, &of_another_type] {
        suite.publish(forged).await?;
    }
    suite.becomes("select count(*) from orders.delivery_attempt where attempts = 0", 2).await?;
    ensure!(suite.number("select count(*) from orders.dead_letter").await? == 0, "it did not wait for a newer replica");
    suite.end_the_wait_for_newer_replicas().await?;
    let is_done = |c: &Value| c["step"] == "project_product_created" && c["in_flight"] == 0 && c["lag"] == 0;
    eventually(async || anyhow::Ok(order.client.items("/api/admin/consumers").await?.iter().any(is_done))).await?;
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
    suite.publish(&Forged::new(INVENTORY, Uuid::now_v7(), &event)).await?;
    suite.becomes("select count(*) from orders.inbox", 1).await?;
    ensure!(order.client.get("/api/admin/dlq/count").await?.body["count"] == 0);
    ensure!(suite.number("select count(*) from orders.outbox_published").await? == 0);
    Ok(())
}

/// The payment is parked, and the order goes on to its deadline or, here, to its cancellation by the customer.
async fn parked_and_undone(suite: &TestSuite, participants: &Participants, order: &Value) -> Test {
    let letter = participants.order.client.until_items("/api/admin/dlq?step=confirm_order", 1).await?.remove(0);
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

/// The reservation of an order of 5.00 is paused, and payment gets a forged event with this amount.
async fn is_not_confirmed_when_charged(total: Money) -> Test {
    let (suite, participants) = TestSuite::selling(500, 10).await?;
    suite.pause(&participants.inventory, "reserve_stock").await?;
    let order = participants.place(&[("A", 1)], "tok_visa").await?;
    let id = |name: &str| order[name].as_str().unwrap().parse::<Uuid>();
    let event = StockReserved {
        order_id: OrderId(id("order_id")?),
        customer_id: "alice".to_owned(),
        total,
        payment_method: "tok_visa".to_owned(),
        lines: Vec::new(),
    };
    suite.publish(&Forged::new(INVENTORY, id("saga_id")?, &event)).await?;
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
