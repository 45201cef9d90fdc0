//! A compensation that overtakes its step wins: every order of arrival at inventory and at payment.

use std::time::Duration;

use anyhow::ensure;
use contracts::{
    Currency, INVENTORY, Money, ORDER, OrderId, PAYMENT, Sku,
    order_fulfillment::{
        CREATE_ORDER, CancelReason, OrderCancelled, OrderCreated, OrderLine, SAGA, StockLine, StockReserved,
    },
};
use messaging::Context;
use saga::Event;
use saga_store::{FirstStep, NewSaga};
use serde_json::json;
use suite_tests::{Forged, Replica, TestSuite};
use testkit::eventually;
use uuid::Uuid;

use crate::Test;

/// Why no test of this file audits.
const UNAUDITED: &str =
    "sagas and events are made up, with no order behind them; money and stock are looked at one by one";

/// The name of each order of arrival.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    StepFirst,
    CancellationFirst,
    Together,
}

const ARRIVALS: [Arrival; 3] = [Arrival::StepFirst, Arrival::CancellationFirst, Arrival::Together];

/// An order with a running saga and without the order service: its events are forged.
struct Orphan {
    order_id: OrderId,
    saga_id: Uuid,
}

impl Orphan {
    async fn new(suite: &TestSuite) -> anyhow::Result<Orphan> {
        let orphan = Orphan { order_id: OrderId::new(), saga_id: Uuid::now_v7() };
        let context = Context::background("test").in_saga(orphan.saga_id, SAGA.saga_type);
        let first = FirstStep {
            definition: &SAGA,
            step: &CREATE_ORDER,
            event_type: OrderCreated::TYPE.wire_name(),
            service: ORDER,
            deadline: Duration::from_secs(600),
        };
        let new = NewSaga {
            saga_id: orphan.saga_id,
            business_key: orphan.order_id.0,
            first_event_id: Uuid::now_v7(),
            context,
        };
        saga_store::insert(&mut *suite.pool.acquire().await?, &first, &[new]).await?;
        Ok(orphan)
    }

    fn created(&self) -> Forged {
        let event = OrderCreated {
            order_id: self.order_id,
            customer_id: "alice".to_owned(),
            lines: vec![OrderLine { sku: sku(), quantity: 2, unit_price: usd(500) }],
            total: usd(1_000),
            payment_method: "tok_visa".to_owned(),
        };
        Forged::new(ORDER, self.saga_id, &event)
    }

    fn reserved(&self) -> Forged {
        let event = StockReserved {
            order_id: self.order_id,
            customer_id: "alice".to_owned(),
            total: usd(1_000),
            payment_method: "tok_visa".to_owned(),
            lines: vec![StockLine { sku: sku(), quantity: 2 }],
        };
        Forged::new(INVENTORY, self.saga_id, &event)
    }

    fn cancelled(&self) -> Forged {
        let event = OrderCancelled {
            order_id: self.order_id,
            customer_id: "alice".to_owned(),
            reason: CancelReason::CustomerRequest,
            detail: "changed my mind".to_owned(),
            total: usd(1_000),
            payment_method: "tok_visa".to_owned(),
        };
        Forged::new(ORDER, self.saga_id, &event)
    }

    /// What order does in the transaction that publishes `OrderCancelled`.
    async fn compensate(&self, suite: &TestSuite) -> Test {
        sqlx::query(
            "update saga.saga_instance
            set status = 'COMPENSATING', receipts_due = '{inventory,payment}', version = version + 1
            where saga_id = $1",
        )
        .bind(self.saga_id)
        .execute(&suite.pool)
        .await?;
        Ok(())
    }

    async fn inbox_has(&self, suite: &TestSuite, schema: &'static str, event: &Forged) -> Test {
        let sql = match schema {
            "inventory" => "select count(*) from inventory.inbox where event_id = $1",
            _ => "select count(*) from payment.inbox where event_id = $1",
        };
        eventually(Duration::from_secs(10), async || {
            let processed: i64 = sqlx::query_scalar(sql).bind(event.event_id).fetch_one(&suite.pool).await?;
            ensure!(processed == 1, "the event has not been applied");
            anyhow::Ok(())
        })
        .await
    }
}

fn sku() -> Sku {
    Sku::try_from("A".to_owned()).unwrap()
}

fn usd(amount: i64) -> Money {
    Money::new(amount, Currency::USD)
}

/// Delivers the two events in this order; where one is first, it is applied before the next.
/// `saga_knows`: whether the saga is COMPENSATING before the step is taken; if not, only the service's own tombstone
/// protects it.
async fn deliver(
    suite: &TestSuite,
    orphan: &Orphan,
    schema: &'static str,
    step: &Forged,
    arrival: Arrival,
    saga_knows: bool,
) -> Test {
    let cancelled = orphan.cancelled();
    match arrival {
        Arrival::StepFirst => {
            suite.publish(step).await?;
            orphan.inbox_has(suite, schema, step).await?;
            orphan.compensate(suite).await?;
            suite.publish(&cancelled).await?;
        }
        Arrival::CancellationFirst => {
            if saga_knows {
                orphan.compensate(suite).await?;
            } else {
                // An undo confirmation would be illegal for a saga that still moves forward, so none is sent.
                suite.publish(&cancelled.clone().header("ce-sagaid", &Uuid::now_v7().to_string())).await?;
                orphan.inbox_has(suite, schema, &cancelled).await?;
                suite.publish(step).await?;
                return orphan.inbox_has(suite, schema, step).await;
            }
            suite.publish(&cancelled).await?;
            orphan.inbox_has(suite, schema, &cancelled).await?;
            suite.publish(step).await?;
        }
        Arrival::Together => {
            // The step may find the saga moving forward or compensating; the confirmation must not find it moving forward.
            let cancel = async {
                orphan.compensate(suite).await?;
                suite.publish(&cancelled).await
            };
            tokio::try_join!(suite.publish(step), cancel)?;
        }
    }
    orphan.inbox_has(suite, schema, step).await?;
    orphan.inbox_has(suite, schema, &cancelled).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn inventory_holds_nothing_for_a_cancelled_order() -> Test {
    let suite = TestSuite::new().await?;
    let (inventory, _second) = tokio::try_join!(suite.start(INVENTORY), suite.start(INVENTORY))?;
    inventory.client.create_product("A", 500, 1_000).await?.expect(201)?;
    for (arrival, saga_knows) in all_arrivals() {
        let orphan = Orphan::new(&suite).await?;
        deliver(&suite, &orphan, "inventory", &orphan.created(), arrival, saga_knows).await?;
        let stock = inventory.client.get("/api/products/A").await?.expect(200)?;
        ensure!(stock["available"] == 1000 && stock["reserved"] == 0, "{arrival:?} {saga_knows}: {stock}");
        ensure!(undo_confirmations(&suite, "inventory.outbox_published", orphan.order_id).await? == 1, "{arrival:?}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn payment_keeps_nothing_of_a_cancelled_order() -> Test {
    let suite = TestSuite::new().await?;
    let (payment, _second) = tokio::try_join!(suite.start(PAYMENT), suite.start(PAYMENT))?;
    for (arrival, saga_knows) in all_arrivals() {
        let orphan = Orphan::new(&suite).await?;
        deliver(&suite, &orphan, "payment", &orphan.reserved(), arrival, saga_knows).await?;
        let status = status_of_payment(&payment, orphan.order_id).await?;
        let first = matches!(arrival, Arrival::StepFirst);
        ensure!(status == "REFUNDED" || status == "VOIDED" && !first, "{arrival:?} {saga_knows}: {status}");
        let totals = suite.gateway_client().get("/v1/totals").await?.expect(200)?;
        let usd = totals["totals"].get(0).cloned().unwrap_or(json!({"charged": 0, "refunded": 0}));
        ensure!(usd["charged"] == usd["refunded"], "{arrival:?} {saga_knows}: {usd}");
        ensure!(undo_confirmations(&suite, "payment.outbox_published", orphan.order_id).await? == 1, "{arrival:?}");
        if matches!(arrival, Arrival::CancellationFirst) {
            ensure!(status == "VOIDED", "a payment whose order was cancelled first is never charged");
        }
    }
    Ok(())
}

/// Each order of arrival; the concurrent one repeatedly, because its outcome depends on timing.
fn all_arrivals() -> impl Iterator<Item = (Arrival, bool)> {
    let together = std::iter::repeat_n((Arrival::Together, true), 20);
    ARRIVALS.into_iter().map(|a| (a, true)).chain([(Arrival::CancellationFirst, false)]).chain(together)
}

async fn status_of_payment(payment: &Replica, order_id: OrderId) -> anyhow::Result<String> {
    let found = payment.client.get(&format!("/api/payments?order_id={order_id}")).await?.expect(200)?;
    Ok(found["items"][0]["status"].as_str().unwrap_or("none").to_owned())
}

/// The number of undo confirmations of the service.
async fn undo_confirmations(suite: &TestSuite, table: &'static str, order_id: OrderId) -> anyhow::Result<i64> {
    let sql = match table {
        "inventory.outbox_published" => {
            "select count(*) from inventory.outbox_published where event_type = 'StockReleased.v1' and payload->>'order_id' = $1"
        }
        _ => {
            "select count(*) from payment.outbox_published where event_type = 'PaymentRefunded.v1' and payload->>'order_id' = $1"
        }
    };
    // The confirmation is committed with the inbox row that the caller has seen; only its publication is missing.
    let waiting = "select (select count(*) from inventory.outbox) + (select count(*) from payment.outbox)";
    suite.becomes(waiting, 0).await?;
    Ok(sqlx::query_scalar(sql).bind(order_id.to_string()).fetch_one(&suite.pool).await?)
}
