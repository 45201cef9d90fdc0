//! Events that cannot be applied: the lane goes on, and nothing is lost.

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
use serde_json::Value;
use suite_tests::{Dancers, Forged, Stage};
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
    let (stage, order) = Stage::alone(ORDER).await?;
    stage.pause(&order, "project_product_created").await?;
    for n in 0..50 {
        let event = product(&format!("P-{n}"));
        let mut forged = Forged::new(INVENTORY, Uuid::now_v7(), &event);
        if n == 20 {
            // Readable, but no database will take it: the view's check constraint refuses the text.
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
        stage.publish(&forged).await?;
    }
    stage.resume(&order, "project_product_created").await?;
    let applied = "select count(*) from orders.product_view";
    stage.becomes(applied, 47).await?;
    let dead = eventually(Duration::from_secs(20), async || {
        stage.end_the_wait_for_newer_replicas().await?;
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

/// As a newer build of inventory would tell of a product.
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

/// As a newer build of order has it.
static NEWER_STEP: StepOn<NewerProductCreated> =
    StepOn::new(0, "project_product_created", ORDER, &[], Kind::Projection);

async fn take(outbox: Outbox, batch: Batch<NewerProductCreated>) -> Result<Committed, StepError> {
    outbox.claim(batch).await?.0.commit().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_of_a_newer_version_is_left_to_a_newer_replica() -> Test {
    let (stage, order) = Stage::alone(ORDER).await?;
    let newer = NewerProductCreated { sku: "A".to_owned() };
    for _ in 0..20 {
        stage.publish(&Forged::new(INVENTORY, Uuid::now_v7(), &newer)).await?;
    }
    let waiting =
        "select count(*) from orders.delivery_attempt where attempts = 0 and last_error like '%ProductCreated.v2%'";
    stage.becomes(waiting, 20).await?;
    let newer = subscribe(&order.app.participant().outbox, &NEWER_STEP, take);
    let stop = CancellationToken::new();
    let running = tokio::spawn(order.consumer(newer, INVENTORY).run(stop.clone()));
    let had = "select count(*) from orders.inbox";
    stage.becomes(had, 20).await?;
    stop.cancel();
    running.await?;
    ensure!(stage.number("select count(*) from orders.dead_letter").await? == 0);
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn what_no_replica_can_read_becomes_a_dead_letter() -> Test {
    let (stage, order) = Stage::alone(ORDER).await?;
    let had = Forged::new(INVENTORY, Uuid::now_v7(), &product("A"));
    stage.publish(&had).await?;
    let applied = "select count(*) from orders.inbox";
    stage.becomes(applied, 1).await?;
    let never_had = Forged::new(INVENTORY, Uuid::now_v7(), &product("B")).header("ce-type", "ProductCreated.v9");
    // Of a type that this build does not know, as when the step has another trigger in a newer one.
    let of_another_type = Forged::new(INVENTORY, Uuid::now_v7(), &product("C")).header("ce-type", "ProductListed.v1");
    for forged in [&had.clone().header("ce-type", "ProductCreated.v9"), &never_had, &of_another_type] {
        stage.publish(forged).await?;
    }
    let waiting = "select count(*) from orders.delivery_attempt where attempts = 0";
    stage.becomes(waiting, 2).await?;
    ensure!(stage.number("select count(*) from orders.dead_letter").await? == 0, "nobody waited for a newer replica");
    stage.end_the_wait_for_newer_replicas().await?;
    eventually(Duration::from_secs(20), async || {
        let settled = order.client.get("/api/admin/consumers").await?.expect(200)?;
        let lane = settled["items"].as_array().into_iter().flatten().find(|c| c["step"] == "project_product_created");
        ensure!(lane.is_some_and(|lane| lane["in_flight"] == 0 && lane["lag"] == 0), "{settled:#}");
        anyhow::Ok(())
    })
    .await?;
    let mut buried: Vec<Uuid> =
        sqlx::query_scalar("select event_id from orders.dead_letter where reason = 'unknown version'")
            .fetch_all(&stage.pool)
            .await?;
    buried.sort_unstable();
    ensure!(buried == [never_had.event_id, of_another_type.event_id], "{buried:?}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_dead_letter_is_replayed_or_discarded_with_a_record() -> Test {
    let (stage, order) = Stage::alone(ORDER).await?;
    stage.execute("alter table orders.product_view add constraint forbidden check (sku not like 'X%')").await?;
    let forged = Forged::new(INVENTORY, Uuid::now_v7(), &product("X-1"));
    stage.publish(&forged).await?;
    let letter = eventually(Duration::from_secs(20), async || {
        let dead = order.client.get("/api/admin/dlq?status=PENDING").await?.expect(200)?;
        anyhow::Ok(dead["items"].get(0).cloned())
    })
    .await?;
    ensure!(letter["attempts"] == 3 && letter["error_chain"].as_str().unwrap().contains("forbidden"), "{letter:#}");
    let path = format!("/api/admin/dlq/{}", letter["id"].as_str().unwrap());
    let replay = format!("{path}/replay");
    let again = order.client.post(&replay, &serde_json::json!({"reason": "hoping"})).await?.expect(200)?;
    ensure!(again["status"] == "PENDING" && again["replay_count"] == 1, "{again:#}");
    stage.execute("alter table orders.product_view drop constraint forbidden").await?;
    let resolved = order.client.post(&replay, &serde_json::json!({"reason": "mended"})).await?.expect(200)?;
    ensure!(resolved["status"] == "RESOLVED" && resolved["actions"].as_array().unwrap().len() == 2, "{resolved:#}");
    ensure!(order.client.get("/api/products/X-1").await?.status == 200);
    ensure!(order.client.post(&replay, &serde_json::json!({})).await?.status == 409);
    let discard = order.client.send(order.client.request(reqwest::Method::DELETE, &path)).await?;
    ensure!(discard.status == 409, "only a pending one can be discarded");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_of_an_order_that_nobody_knows_changes_nothing() -> Test {
    let (stage, order) = Stage::alone(ORDER).await?;
    let event = StockReservationFailed { order_id: OrderId::new(), reason: "none".to_owned(), shortages: Vec::new() };
    let forged = Forged::new(INVENTORY, Uuid::now_v7(), &event);
    stage.publish(&forged).await?;
    let had = "select count(*) from orders.inbox";
    stage.becomes(had, 1).await?;
    ensure!(order.client.get("/api/admin/dlq/count").await?.body["count"] == 0);
    ensure!(stage.number("select count(*) from orders.outbox_published").await? == 0);
    Ok(())
}

/// An order of 5.00 whose stock nobody reserves for now.
async fn waiting_order(stage: &Stage, suite: &Dancers) -> anyhow::Result<(OrderId, Uuid, Value)> {
    suite.sell("A", 500, 10).await?;
    stage.pause(&suite.inventory, "reserve_stock").await?;
    let order = suite.place(&[("A", 1)], "tok_visa").await?;
    let id = |name: &str| order[name].as_str().unwrap().parse::<Uuid>();
    Ok((OrderId(id("order_id")?), id("saga_id")?, order))
}

/// The payment is parked, the order goes its way to the deadline or, here, to its customer's change of mind.
async fn parked_and_undone(stage: &Stage, suite: &Dancers, order: &Value) -> Test {
    let letter = eventually(Duration::from_secs(20), async || {
        let letters = suite.order.client.get("/api/admin/dlq?step=confirm_order").await?.expect(200)?;
        let status = suite.order(order).await?["status"].clone();
        letters["items"].get(0).cloned().map(Some).with_context(|| format!("nothing is parked, the order is {status}"))
    })
    .await?;
    ensure!(letter["reason"] == "poison" && letter["attempts"] == 1, "{letter:#}");
    ensure!(letter["error_chain"].as_str().is_some_and(|chain| chain.contains("500 USD")), "{letter:#}");
    let breaker = suite.order.breaker("confirm_order").await?;
    ensure!(breaker["state"] == "closed" && breaker["failures"] == 0, "{breaker:#}");
    ensure!(suite.order(order).await?["status"] == "PENDING");
    let replay = format!("/api/admin/dlq/{}/replay", letter["id"].as_str().unwrap());
    let again = suite.order.client.post(&replay, &serde_json::json!({"reason": "hoping"})).await?.expect(200)?;
    ensure!(again["status"] == "PENDING", "a replay let it through: {again:#}");
    stage.resume(&suite.inventory, "reserve_stock").await?;
    ensure!(suite.cancel(order).await? == 202);
    suite.saga_becomes(order, "COMPENSATED").await?;
    let totals = stage.gateway_client().get("/v1/totals").await?.expect(200)?;
    ensure!(totals["totals"].as_array().unwrap().iter().all(|t| t["charged"] == t["refunded"]), "{totals}");
    Ok(())
}

/// Payment is told to charge this for it, by an event that nobody wrote.
async fn is_not_confirmed_when_charged(total: Money) -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    let (order_id, saga_id, order) = waiting_order(&stage, &suite).await?;
    let event = StockReserved {
        order_id,
        customer_id: "alice".to_owned(),
        total,
        payment_method: "tok_visa".to_owned(),
        lines: Vec::new(),
    };
    stage.publish(&Forged::new(INVENTORY, saga_id, &event)).await?;
    parked_and_undone(&stage, &suite, &order).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_order_that_is_charged_a_cent_is_not_confirmed() -> Test {
    is_not_confirmed_when_charged(Money::new(1, Currency::USD)).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_order_that_is_paid_in_another_currency_is_not_confirmed() -> Test {
    is_not_confirmed_when_charged(Money::new(500, "JPY".parse()?)).await
}
