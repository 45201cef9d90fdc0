//! The suite without background tasks: no relay, no consumer, no clock. A test takes every step, through the same functions and
//! statements. It triggers a step as an operator would, by replaying a dead letter.

use contracts::order_fulfillment::SagaTimedOut;
use messaging::dead_letter::{self, ReplayOutcome};
use model::{
    Action,
    mail::{Id, Kind, Reader},
    payment::Side,
};
use saga::{Service, Step};

use super::seen::{AMOUNT, Seen};
use crate::prelude::*;

/// The three services, idle.
pub(super) struct ByHand {
    suite: TestSuite,
    order: Replica,
    inventory: Replica,
    payment: Replica,
}

/// The orders of one walk, and their product.
pub(super) struct Case {
    sku: String,
    orders: Vec<Placed>,
}

struct Placed {
    order_id: Uuid,
    saga_id: Uuid,
}

/// An event of an outbox.
#[derive(sqlx::FromRow)]
struct Event {
    event_id: Uuid,
    aggregate_id: String,
    event_type: String,
    subject: String,
    headers: Value,
    payload: String,
    saga_id: Option<Uuid>,
}

impl ByHand {
    pub(super) async fn new() -> anyhow::Result<ByHand> {
        let (suite, order) = TestSuite::alone_with(Tuning { by_hand: true, ..Tuning::default() }, ORDER).await?;
        let inventory = suite.start(INVENTORY).await?;
        let payment = suite.start(PAYMENT).await?;
        Ok(ByHand { suite, order, inventory, payment })
    }

    /// A new product with this many units, and two orders for one of them.
    pub(super) async fn begin(&self, stock: i8, good_cards: &[bool]) -> anyhow::Result<Case> {
        let sku = format!("S-{}", Uuid::now_v7().simple());
        self.inventory.client.create_product(&sku, AMOUNT, stock.into()).await?.expect(201)?;
        let created = self.event("aggregate_id = $1 and event_type like $2", &sku, "ProductCreated.%", 0).await?;
        self.replay(&self.order, &contracts::catalogue::PROJECT_PRODUCT_CREATED, &created).await?;
        let mut orders = Vec::new();
        for good in good_cards {
            let token = if *good { "tok_visa" } else { "tok_declined" };
            let placed = self.order.client.order(&[(&sku, 1)], token).await?;
            let id = |name: &str| -> anyhow::Result<Uuid> { Ok(placed[name].as_str().context("an id")?.parse()?) };
            orders.push(Placed { order_id: id("order_id")?, saga_id: id("saga_id")? });
        }
        Ok(Case { sku, orders })
    }

    /// Carries out the action in the suite; actions that concern only the broker do nothing.
    pub(super) async fn take(&self, case: &Case, (order, action): (usize, Action)) -> Test {
        let Placed { order_id, saga_id } = &case.orders[order];
        match action {
            Action::Publish((Kind::OrderCancelled, n)) => self.publish(*saga_id, n).await,
            Action::Deliver(id, place) | Action::DeliverUnacknowledged(id, place) => {
                self.deliver(*saga_id, id, id.0.readers()[place]).await
            }
            Action::Take(Side::Charge, n) => {
                self.deliver(*saga_id, (Kind::StockReserved, n), Reader::ProcessPayment).await
            }
            Action::Take(Side::Refund, n) => {
                self.deliver(*saga_id, (Kind::OrderCancelled, n), Reader::RefundPayment).await
            }
            Action::FindDue => self.time_out(*saga_id).await,
            Action::RetryCompensation => self.retry_compensation(*saga_id).await,
            Action::Resume => self.order.client.act(&format!("/api/admin/sagas/{saga_id}/resume")).await.map(drop),
            Action::Cancel => {
                let path = format!("/api/orders/{order_id}/cancel");
                let answer = self.order.client.post(&path, &json!({"reason": "changed my mind"})).await?;
                ensure!((200..300).contains(&answer.status), "the order cannot be cancelled: {answer:?}");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn seen(&self, case: &Case, order: usize) -> anyhow::Result<Seen> {
        let kinds: Vec<String> = Kind::ALL.iter().map(|(_, event)| event.name.to_owned()).collect();
        let row: Value = sqlx::query_scalar(Seen::SQL)
            .bind(case.orders[order].order_id)
            .bind(&case.sku)
            .bind(kinds)
            .fetch_one(&self.suite.pool)
            .await?;
        Ok(serde_json::from_value(row)?)
    }

    /// The total of the charges that were not refunded.
    pub(super) async fn money_kept(&self) -> anyhow::Result<i64> {
        self.suite.money_kept().await
    }

    /// Publishes a cancellation. The stream is empty, so all its consumers count as up to date.
    async fn publish(&self, saga_id: Uuid, n: u8) -> Test {
        let event = self.event_of(saga_id, (Kind::OrderCancelled, n)).await?;
        let moved = sqlx::query(
            "with gone as (delete from orders.outbox where event_id = $1 returning *)
            insert into orders.outbox_published (event_id, position, aggregate_type, aggregate_id, aggregate_sequence,
                event_type, subject, headers, payload, saga_id, created_at, stream, stream_sequence, stream_epoch, relay)
            select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
                payload, saga_id, created_at, 'ORDER', 1, 1, 'by hand'
            from gone",
        );
        let moved = moved.bind(event.event_id).execute(&self.suite.pool).await?;
        ensure!(moved.rows_affected() == 1, "it is not in the outbox");
        Ok(())
    }

    async fn deliver(&self, saga_id: Uuid, id: Id, reader: Reader) -> Test {
        let step = SAGA_STEPS.iter().find(|step| Reader::of(step) == Some(reader)).context("a step of the saga")?;
        let event = self.event_of(saga_id, id).await?;
        self.replay(self.replica(step.service), step, &event).await
    }

    fn replica(&self, service: Option<Service>) -> &Replica {
        match service {
            Some(INVENTORY) => &self.inventory,
            Some(PAYMENT) => &self.payment,
            _ => &self.order,
        }
    }

    async fn event_of(&self, saga_id: Uuid, (kind, n): Id) -> anyhow::Result<Event> {
        let of_kind = "saga_id = $1::uuid and event_type = $2";
        self.event(of_kind, &saga_id.to_string(), &kind.event_type().wire_name(), n.into()).await
    }

    /// The n-th event that matches the condition, in the order of their creation.
    async fn event(&self, condition: &str, first: &str, second: &str, n: i64) -> anyhow::Result<Event> {
        let columns =
            "event_id, aggregate_id, event_type, subject, headers, payload::text as payload, saga_id, created_at";
        let sql = format!(
            "select * from (
                select {columns} from orders.outbox union all
                select {columns} from orders.outbox_published union all
                select {columns} from inventory.outbox union all
                select {columns} from payment.outbox) as e
            where {condition} order by created_at, event_id offset $3 limit 1"
        );
        let found = sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(first).bind(second).bind(n);
        found.fetch_one(&self.suite.pool).await.with_context(|| format!("there is no {second} of {first}"))
    }

    async fn replay(&self, replica: &Replica, step: &Step, event: &Event) -> Test {
        let mut headers = event.headers.clone();
        headers["ce-specversion"] = json!("1.0");
        headers["ce-id"] = json!(event.event_id);
        headers["ce-type"] = json!(event.event_type);
        headers["ce-subject"] = json!(event.aggregate_id);
        if let Some(saga_id) = event.saga_id {
            headers["ce-sagaid"] = json!(saga_id);
        }
        let pool = &replica.app.participant().pools.work;
        let letter: Uuid = sqlx::query_scalar(
            "insert into dead_letter (dead_letter_id, event_id, event_type, subject, headers, payload, consumer, step,
                reason, error_chain, source_service, attempts)
            values ($1, $2, $3, $4, $5, $6, $7, $8, 'by hand', '', 'test', 1)
            on conflict (consumer, event_id) do update set status = 'PENDING', replay_count = 0
            returning dead_letter_id",
        )
        .bind(Uuid::now_v7())
        .bind(event.event_id)
        .bind(&event.event_type)
        .bind(&event.subject)
        .bind(headers)
        .bind(event.payload.as_bytes())
        .bind(step.consumer())
        .bind(step.name)
        .fetch_one(pool)
        .await?;
        let replays = replica.app.participant().replays(&replica.subscriptions);
        let outcome = dead_letter::replay(&replays, letter, "test", None).await?;
        ensure!(outcome == ReplayOutcome::Resolved, "{} fails: {outcome:?}", step.name);
        Ok(())
    }

    /// Lets the deadline pass, and runs both detectors.
    async fn time_out(&self, saga_id: Uuid) -> Test {
        let due = "update saga.saga_instance set deadline = now() - interval '1 s'";
        self.suite.execute(format!("{due} where saga_id = '{saga_id}'")).await?;
        for replica in [&self.payment, &self.inventory] {
            replica.app.participant().timeout_detector::<SagaTimedOut>().detect_timeout().await?;
        }
        Ok(())
    }

    async fn retry_compensation(&self, saga_id: Uuid) -> Test {
        let due = "update saga.saga_instance set compensation_deadline = now() - interval '1 s'";
        self.suite.execute(format!("{due} where saga_id = '{saga_id}'")).await?;
        let App::Order(app) = &self.order.app else { anyhow::bail!("order is another service") };
        let driven = order::drive_compensation(app).await?;
        ensure!(driven == 1, "{driven} sagas were overdue");
        Ok(())
    }
}

static SAGA_STEPS: &[&Step] = contracts::order_fulfillment::SAGA.steps;
