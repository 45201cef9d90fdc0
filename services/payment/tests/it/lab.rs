//! A database and a broker per test, the service's app on them, and sagas.

use std::{str::FromStr, sync::Arc};

use bootstrap::Startup;
use clap::Parser;
use contracts::{
    Currency, Money, ORDER, OrderId,
    order_fulfillment::{
        CREATE_ORDER, CancelReason, OrderCancelled, PROCESS_PAYMENT, REFUND_PAYMENT, SAGA, StockReserved,
    },
};
use faults::Faults;
use messaging::{Batch, Committed, Context, Delivery, Metadata, StepError};
use payment::{App, Config, steps};
use saga_store::{FirstStep, NewSaga};
use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use testkit::{Database, Nats};
use uuid::Uuid;

use crate::scripted_gateway::{CallFault, ScriptedGateway};

pub(crate) const PRICE: i64 = 1_999;

pub(crate) struct Lab {
    pub(crate) app: App,
    pub(crate) gateway: Arc<ScriptedGateway>,
    pub(crate) pool: PgPool,
    _startup: Startup,
    _database: Database,
    _nats: Nats,
}

/// An order, and its saga before `process_payment`.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) order_id: OrderId,
    pub(crate) saga_id: Uuid,
    pub(crate) method: &'static str,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        let database = Database::from_template("payment", make_tables).await.unwrap();
        let nats = Nats::start().await.unwrap();
        let (url, nats_url) = (database.admin_url(), nats.url());
        let arguments = ["payment", "--database-url", &url, "--nats-url", &nats_url, "--gateway-patience", "2s"];
        let config = Config::parse_from(arguments.into_iter().chain(["--allow-unsafe-durability"]));
        let startup = Startup::new(payment::INFO);
        let gateway = Arc::new(ScriptedGateway::default());
        let app = App::connect_with(&startup, config, Faults::none(), |_| Ok(gateway.clone())).await.unwrap();
        let options = PgConnectOptions::from_str(&url).unwrap().options([("search_path", "payment, saga")]);
        let pool = PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
        Lab { app, gateway, pool, _startup: startup, _database: database, _nats: nats }
    }

    /// With an order with this payment method.
    pub(crate) async fn with_order(method: &'static str) -> (Self, Order) {
        let lab = Self::start().await;
        let order = lab.order(method).await;
        (lab, order)
    }

    /// An order whose saga has reached `process_payment`.
    pub(crate) async fn order(&self, method: &'static str) -> Order {
        let order = Order { order_id: OrderId::new(), saga_id: Uuid::now_v7(), method };
        let mut transaction = self.pool.begin().await.unwrap();
        let first = FirstStep {
            definition: &SAGA,
            step: &CREATE_ORDER,
            event_type: "OrderCreated.v1".to_owned(),
            service: ORDER,
            deadline: SAGA.deadline,
        };
        let new = NewSaga {
            saga_id: order.saga_id,
            business_key: order.order_id.0,
            first_event_id: Uuid::now_v7(),
            context: order.context(),
        };
        saga_store::insert(&mut transaction, &first, &[new]).await.unwrap();
        transaction.commit().await.unwrap();
        self.saga_becomes(&order, "status = 'IN_PROGRESS', current_step = 1").await;
        order
    }

    /// As if the customer had cancelled: the saga is COMPENSATING.
    pub(crate) async fn cancel(&self, order: &Order) -> Delivery<OrderCancelled> {
        let due = "status = 'COMPENSATING', receipts_due = '{inventory,payment}'";
        self.saga_becomes(order, &format!("{due}, failed_at_step = 'cancel_order_on_request'")).await;
        order.cancelled()
    }

    pub(crate) async fn time_out(&self, order: &Order) {
        self.saga_becomes(order, "status = 'TIMED_OUT'").await;
    }

    /// Updates the saga like another service's step.
    async fn saga_becomes(&self, order: &Order, set: &str) {
        let sql = format!("update saga_instance set {set}, version = version + 1 where saga_id = $1");
        sqlx::query(AssertSqlSafe(sql)).bind(order.saga_id).execute(&self.pool).await.unwrap();
    }

    pub(crate) async fn charge(&self, deliveries: &[&Delivery<StockReserved>]) -> Result<Committed, StepError> {
        let batch = Batch::new(&PROCESS_PAYMENT.step, deliveries.iter().map(|d| (*d).clone()).collect());
        steps::process_payment(self.app.clone(), batch).await
    }

    /// The charge, of whose calls no answer arrives: its outcome stays unknown.
    pub(crate) async fn charge_unanswered(&self, delivery: &Delivery<StockReserved>) {
        self.gateway.next(&[CallFault::AnswerLost; 5]);
        self.charge(&[delivery]).await.unwrap();
    }

    pub(crate) async fn refund(&self, deliveries: &[&Delivery<OrderCancelled>]) -> Result<Committed, StepError> {
        let batch = Batch::new(&REFUND_PAYMENT.step, deliveries.iter().map(|d| (*d).clone()).collect());
        steps::refund_payment(self.app.clone(), batch).await
    }

    /// The order's payment; empty when it has none.
    pub(crate) async fn payment(&self, order: &Order) -> String {
        let query = sqlx::query_scalar("select status from payment where order_id = $1").bind(order.order_id.0);
        query.fetch_optional(&self.pool).await.unwrap().unwrap_or_default()
    }

    /// As if the database were restored to before any intent.
    pub(crate) async fn forget_payments(&self) {
        sqlx::query("delete from payment").execute(&self.pool).await.unwrap();
    }

    /// As if it were restored to before any order.
    pub(crate) async fn forget_sagas(&self) {
        sqlx::query("delete from saga_step").execute(&self.pool).await.unwrap();
        sqlx::query("delete from saga_instance").execute(&self.pool).await.unwrap();
    }

    /// Gives the payment a random id instead of the one that is derived from its order, and returns it.
    pub(crate) async fn assign_random_payment_id(&self, order: &Order) -> Uuid {
        let query = sqlx::query_scalar("update payment set payment_id = $2 where order_id = $1 returning payment_id");
        query.bind(order.order_id.0).bind(Uuid::now_v7()).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn payment_id(&self, order: &Order) -> Uuid {
        let query = sqlx::query_scalar("select payment_id from payment where order_id = $1").bind(order.order_id.0);
        query.fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn saga(&self, order: &Order) -> String {
        let query = sqlx::query_scalar("select status from saga_instance where saga_id = $1").bind(order.saga_id);
        query.fetch_one(&self.pool).await.unwrap()
    }

    /// The published events of the order, in order: types without version, with the payment's sequence.
    pub(crate) async fn published(&self, order: &Order) -> Vec<String> {
        let query = sqlx::query_scalar(
            "select split_part(event_type, '.', 1) || ' ' || aggregate_sequence
            from outbox where aggregate_id = $1 order by position",
        );
        query.bind(order.order_id.to_string()).fetch_all(&self.pool).await.unwrap()
    }

    /// The journal entries of payment's steps.
    pub(crate) async fn journal(&self, order: &Order) -> Vec<String> {
        let query = sqlx::query_scalar(
            "select step || ' ' || status from saga_step
            where saga_id = $1 and service = 'payment' order by position",
        );
        query.bind(order.saga_id).fetch_all(&self.pool).await.unwrap()
    }

    /// Whether the event is in the inbox.
    pub(crate) async fn is_processed(&self, event_id: Uuid) -> bool {
        let query = sqlx::query_scalar("select exists (select from inbox where event_id = $1)").bind(event_id);
        query.fetch_one(&self.pool).await.unwrap()
    }

    /// The amount in the last receipt.
    pub(crate) async fn refunded(&self, order: &Order) -> Option<i64> {
        let query = sqlx::query_scalar(
            "select (payload->'amount'->>'amount')::bigint from outbox
            where aggregate_id = $1 and event_type = 'PaymentRefunded.v1' order by position desc limit 1",
        );
        query.bind(order.order_id.to_string()).fetch_optional(&self.pool).await.unwrap()
    }
}

impl Order {
    fn context(&self) -> Context {
        Context::background("test").in_saga(self.saga_id, SAGA.saga_type)
    }

    pub(crate) fn reserved(&self) -> Delivery<StockReserved> {
        let event = StockReserved {
            order_id: self.order_id,
            customer_id: "alice".to_owned(),
            total: price(),
            payment_method: self.method.to_owned(),
            lines: Vec::new(),
        };
        self.delivery(event)
    }

    pub(crate) fn cancelled(&self) -> Delivery<OrderCancelled> {
        let event = OrderCancelled {
            order_id: self.order_id,
            customer_id: "alice".to_owned(),
            reason: CancelReason::CustomerRequest,
            detail: "changed my mind".to_owned(),
            total: price(),
            payment_method: self.method.to_owned(),
        };
        self.delivery(event)
    }

    fn delivery<E>(&self, event: E) -> Delivery<E> {
        Delivery { event, meta: Metadata { event_id: Uuid::now_v7(), sequence: 1, published_in: self.context() } }
    }
}

fn price() -> Money {
    Money::new(PRICE, Currency::USD)
}

async fn make_tables(url: String) -> anyhow::Result<()> {
    let options = PgConnectOptions::from_str(&url)?;
    saga_store::migrate(&options).await?;
    messaging::migrate(&options, "payment").await?;
    Ok(messaging::apply_migrations(&options, "payment", "_migration", &payment::MIGRATIONS).await?)
}
