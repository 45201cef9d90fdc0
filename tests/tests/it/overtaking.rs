//! A compensation that overtakes its step wins: every order of arrival at inventory and at payment.

use contracts::{
    Currency, Money, OrderId, Sku,
    order_fulfillment::{
        CREATE_ORDER, CancelReason, OrderCancelled, OrderCreated, OrderLine, SAGA, StockLine, StockReserved,
    },
};
use messaging::Context;
use saga::Event;
use saga_store::{FirstStep, NewSaga};

use crate::prelude::*;

/// Why no test of this file audits.
const UNAUDITED: &str =
    "sagas and events are made up, with no order behind them; money and stock are looked at one by one";

/// In which order a step's event and the cancellation arrive.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    StepFirst,
    CancellationFirst,
    /// The saga is not COMPENSATING when the step is taken: only the service's own tombstone protects it.
    TombstoneOnly,
    Together,
}

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
        let begun = format!(
            "update saga.saga_instance
            set status = 'COMPENSATING', receipts_due = '{{inventory,payment}}', version = version + 1
            where saga_id = '{}'",
            self.saga_id
        );
        suite.execute(begun).await.map(drop)
    }
}

async fn applied(suite: &TestSuite, schema: &str, event: &Forged) -> Test {
    suite.becomes(format!("select count(*) from {schema}.inbox where event_id = '{}'", event.event_id), 1).await
}

fn sku() -> Sku {
    Sku::try_from("A".to_owned()).unwrap()
}

fn usd(amount: i64) -> Money {
    Money::new(amount, Currency::USD)
}

/// Delivers the two events in this order; where one is first, it is applied before the next.
async fn deliver(suite: &TestSuite, orphan: &Orphan, schema: &str, step: &Forged, arrival: Arrival) -> Test {
    let cancelled = orphan.cancelled();
    match arrival {
        Arrival::StepFirst => {
            suite.publish(step).await?;
            applied(suite, schema, step).await?;
            orphan.compensate(suite).await?;
            suite.publish(&cancelled).await?;
        }
        Arrival::CancellationFirst => {
            orphan.compensate(suite).await?;
            suite.publish(&cancelled).await?;
            applied(suite, schema, &cancelled).await?;
            suite.publish(step).await?;
        }
        Arrival::TombstoneOnly => {
            // An undo confirmation would be illegal for a saga that still moves forward, so none is sent.
            suite.publish(&cancelled.clone().header("ce-sagaid", &Uuid::now_v7().to_string())).await?;
            applied(suite, schema, &cancelled).await?;
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
    applied(suite, schema, step).await?;
    applied(suite, schema, &cancelled).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn inventory_holds_nothing_for_a_cancelled_order() -> Test {
    let suite = TestSuite::new().await?;
    let (inventory, _second) = tokio::try_join!(suite.start(INVENTORY), suite.start(INVENTORY))?;
    inventory.client.create_product("A", 500, 1_000).await?.expect(201)?;
    for arrival in all_arrivals() {
        let orphan = Orphan::new(&suite).await?;
        deliver(&suite, &orphan, "inventory", &orphan.created(), arrival).await?;
        let stock = inventory.client.get("/api/products/A").await?.expect(200)?;
        ensure!(stock["available"] == 1000 && stock["reserved"] == 0, "{arrival:?}: {stock}");
        let released = "inventory.outbox_published where event_type = 'StockReleased.v1'";
        ensure!(undo_confirmations(&suite, released, orphan.order_id).await? == 1, "{arrival:?}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn payment_keeps_nothing_of_a_cancelled_order() -> Test {
    let suite = TestSuite::new().await?;
    let (payment, _second) = tokio::try_join!(suite.start(PAYMENT), suite.start(PAYMENT))?;
    for arrival in all_arrivals() {
        let orphan = Orphan::new(&suite).await?;
        deliver(&suite, &orphan, "payment", &orphan.reserved(), arrival).await?;
        let found = payment.client.items(&format!("/api/payments?order_id={}", orphan.order_id)).await?;
        let status = found.first().and_then(|payment| payment["status"].as_str()).unwrap_or("none");
        // A payment whose order was cancelled first is never charged.
        let expected: &[&str] = match arrival {
            Arrival::StepFirst => &["REFUNDED"],
            Arrival::CancellationFirst | Arrival::TombstoneOnly => &["VOIDED"],
            Arrival::Together => &["REFUNDED", "VOIDED"],
        };
        ensure!(expected.contains(&status), "{arrival:?}: {status}");
        ensure!(suite.money_kept().await? == 0, "{arrival:?}");
        let refunded = "payment.outbox_published where event_type = 'PaymentRefunded.v1'";
        ensure!(undo_confirmations(&suite, refunded, orphan.order_id).await? == 1, "{arrival:?}");
    }
    Ok(())
}

/// Each order of arrival; the concurrent one repeatedly, because its outcome depends on timing.
fn all_arrivals() -> impl Iterator<Item = Arrival> {
    let in_turn = [Arrival::StepFirst, Arrival::CancellationFirst, Arrival::TombstoneOnly];
    in_turn.into_iter().chain(std::iter::repeat_n(Arrival::Together, 20))
}

/// The number of undo confirmations of the order among these events.
async fn undo_confirmations(suite: &TestSuite, events: &str, order_id: OrderId) -> anyhow::Result<i64> {
    // The confirmation is committed with the inbox row that the caller has seen; only its publication is missing.
    suite.becomes("select (select count(*) from inventory.outbox) + (select count(*) from payment.outbox)", 0).await?;
    suite.number(format!("select count(*) from {events} and payload->>'order_id' = '{order_id}'")).await
}
