//! A compensation that overtakes its step wins: every order of events at inventory and at payment.

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
use suite_tests::{Forged, Replica, Stage};
use testkit::eventually;
use uuid::Uuid;

use crate::Test;

/// Why no test of this file audits.
const UNAUDITED: &str =
    "sagas and events are made up, with no order behind them; money and stock are looked at one by one";

/// What each order of the two events is called.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    StepFirst,
    CancellationFirst,
    Together,
}

const ARRIVALS: [Arrival; 3] = [Arrival::StepFirst, Arrival::CancellationFirst, Arrival::Together];

/// An order whose saga runs, while the order service does not: its events are forged.
struct Orphan {
    order_id: OrderId,
    saga_id: Uuid,
}

impl Orphan {
    async fn new(stage: &Stage) -> anyhow::Result<Orphan> {
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
        saga_store::insert(&mut *stage.pool.acquire().await?, &first, &[new]).await?;
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

    /// What order does in the transaction in which it publishes `OrderCancelled`.
    async fn compensate(&self, stage: &Stage) -> Test {
        sqlx::query(
            "update saga.saga_instance
            set status = 'COMPENSATING', receipts_due = '{inventory,payment}', version = version + 1
            where saga_id = $1",
        )
        .bind(self.saga_id)
        .execute(&stage.pool)
        .await?;
        Ok(())
    }

    async fn inbox_has(&self, stage: &Stage, schema: &'static str, event: &Forged) -> Test {
        let sql = match schema {
            "inventory" => "select count(*) from inventory.inbox where event_id = $1",
            _ => "select count(*) from payment.inbox where event_id = $1",
        };
        eventually(Duration::from_secs(10), async || {
            let had: i64 = sqlx::query_scalar(sql).bind(event.event_id).fetch_one(&stage.pool).await?;
            ensure!(had == 1, "the event has not been applied");
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

/// Delivers the two events in this order, each one applied before the next where one is first.
/// `saga_knows`: whether the saga is COMPENSATING before the step is taken; if not, only the
/// service's own tombstone protects it.
async fn deliver(
    stage: &Stage,
    orphan: &Orphan,
    schema: &'static str,
    step: &Forged,
    arrival: Arrival,
    saga_knows: bool,
) -> Test {
    let cancelled = orphan.cancelled();
    match arrival {
        Arrival::StepFirst => {
            stage.publish(step).await?;
            orphan.inbox_has(stage, schema, step).await?;
            orphan.compensate(stage).await?;
            stage.publish(&cancelled).await?;
        }
        Arrival::CancellationFirst => {
            if saga_knows {
                orphan.compensate(stage).await?;
            } else {
                // The receipt would be illegal for a saga that still moves forward, so it is sent to none.
                stage.publish(&cancelled.clone().header("ce-sagaid", &Uuid::now_v7().to_string())).await?;
                orphan.inbox_has(stage, schema, &cancelled).await?;
                stage.publish(step).await?;
                return orphan.inbox_has(stage, schema, step).await;
            }
            stage.publish(&cancelled).await?;
            orphan.inbox_has(stage, schema, &cancelled).await?;
            stage.publish(step).await?;
        }
        Arrival::Together => {
            // The step may find the saga still moving forward, or not any more; the receipt must not.
            let cancel = async {
                orphan.compensate(stage).await?;
                stage.publish(&cancelled).await
            };
            tokio::try_join!(stage.publish(step), cancel)?;
        }
    }
    orphan.inbox_has(stage, schema, step).await?;
    orphan.inbox_has(stage, schema, &cancelled).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn inventory_holds_nothing_for_a_cancelled_order() -> Test {
    let stage = Stage::new().await?;
    let (inventory, _second) = tokio::try_join!(stage.start(INVENTORY), stage.start(INVENTORY))?;
    inventory.client.create_product("A", 500, 1_000).await?.expect(201)?;
    for (arrival, saga_knows) in all_arrivals() {
        let orphan = Orphan::new(&stage).await?;
        deliver(&stage, &orphan, "inventory", &orphan.created(), arrival, saga_knows).await?;
        let stock = inventory.client.get("/api/products/A").await?.expect(200)?;
        ensure!(stock["available"] == 1000 && stock["reserved"] == 0, "{arrival:?} {saga_knows}: {stock}");
        ensure!(receipts(&stage, "inventory.outbox_published", orphan.order_id).await? == 1, "{arrival:?}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn payment_keeps_nothing_of_a_cancelled_order() -> Test {
    let stage = Stage::new().await?;
    let (payment, _second) = tokio::try_join!(stage.start(PAYMENT), stage.start(PAYMENT))?;
    for (arrival, saga_knows) in all_arrivals() {
        let orphan = Orphan::new(&stage).await?;
        deliver(&stage, &orphan, "payment", &orphan.reserved(), arrival, saga_knows).await?;
        let status = status_of_payment(&payment, orphan.order_id).await?;
        let first = matches!(arrival, Arrival::StepFirst);
        ensure!(status == "REFUNDED" || status == "VOIDED" && !first, "{arrival:?} {saga_knows}: {status}");
        let totals = stage.gateway_client().get("/v1/totals").await?.expect(200)?;
        let usd = totals["totals"].get(0).cloned().unwrap_or(json!({"charged": 0, "refunded": 0}));
        ensure!(usd["charged"] == usd["refunded"], "{arrival:?} {saga_knows}: {usd}");
        ensure!(receipts(&stage, "payment.outbox_published", orphan.order_id).await? == 1, "{arrival:?}");
        if matches!(arrival, Arrival::CancellationFirst) {
            ensure!(status == "VOIDED", "a payment whose order was cancelled first is never charged");
        }
    }
    Ok(())
}

/// Each order of arrival; the concurrent one often, since it is the one with luck in it.
fn all_arrivals() -> impl Iterator<Item = (Arrival, bool)> {
    let together = std::iter::repeat_n((Arrival::Together, true), 20);
    ARRIVALS.into_iter().map(|a| (a, true)).chain([(Arrival::CancellationFirst, false)]).chain(together)
}

async fn status_of_payment(payment: &Replica, order_id: OrderId) -> anyhow::Result<String> {
    let found = payment.client.get(&format!("/api/payments?order_id={order_id}")).await?.expect(200)?;
    Ok(found["items"][0]["status"].as_str().unwrap_or("none").to_owned())
}

/// How often the service confirmed its undo.
async fn receipts(stage: &Stage, table: &'static str, order_id: OrderId) -> anyhow::Result<i64> {
    let sql = match table {
        "inventory.outbox_published" => {
            "select count(*) from inventory.outbox_published where event_type = 'StockReleased.v1' and payload->>'order_id' = $1"
        }
        _ => {
            "select count(*) from payment.outbox_published where event_type = 'PaymentRefunded.v1' and payload->>'order_id' = $1"
        }
    };
    // The receipt is committed with the inbox row that the caller has seen, so all that is missing is its relay.
    let waiting = "select (select count(*) from inventory.outbox) + (select count(*) from payment.outbox)";
    stage.becomes(waiting, 0).await?;
    Ok(sqlx::query_scalar(sql).bind(order_id.to_string()).fetch_one(&stage.pool).await?)
}
