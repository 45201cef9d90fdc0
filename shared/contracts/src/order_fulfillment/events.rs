//! The bodies of the saga's events. They change by addition only (docs/upgrades.md); `tests/golden` has one of each,
//! docs/contracts.json their schemas.

use saga::{Event, EventType, Expired, Kind, Refusal, Service, Timeout};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{INVENTORY, Money, ORDER, OrderId, PAYMENT, PaymentId, SERVICES, Sku};

/// An order was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderCreated {
    pub order_id: OrderId,
    pub customer_id: String,
    pub lines: Vec<OrderLine>,
    pub total: Money,
    pub payment_method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderLine {
    pub sku: Sku,
    pub quantity: i64,
    pub unit_price: Money,
}

/// Every line of the order is reserved. Carries all that payment needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockReserved {
    pub order_id: OrderId,
    pub customer_id: String,
    pub total: Money,
    pub payment_method: String,
    pub lines: Vec<StockLine>,
}

/// A quantity of one SKU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockLine {
    pub sku: Sku,
    pub quantity: i64,
}

/// A refusal: at least one line cannot be filled, so nothing is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockReservationFailed {
    pub order_id: OrderId,
    pub reason: String,
    pub shortages: Vec<Shortage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortage {
    pub sku: Sku,
    pub requested: i64,
    pub available: i64,
}

/// The card was charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentProcessed {
    pub order_id: OrderId,
    pub payment_id: PaymentId,
    pub amount: Money,
    pub gateway_reference: String,
}

/// A refusal: the card was declined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentFailed {
    pub order_id: OrderId,
    pub payment_id: PaymentId,
    pub amount: Money,
    pub decline_code: String,
}

/// The order is confirmed; the saga is COMPLETED.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderConfirmed {
    pub order_id: OrderId,
    pub customer_id: String,
    pub total: Money,
}

/// The order is cancelled. Inventory and payment undo their steps concurrently, and publish their receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderCancelled {
    pub order_id: OrderId,
    pub customer_id: String,
    pub reason: CancelReason,
    pub detail: String,
    pub total: Money,
    pub payment_method: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CancelReason {
    OutOfStock,
    PaymentRefused,
    TimedOut,
    CustomerRequest,
}

/// Inventory's receipt: it holds nothing for the order. `lines` is what this step released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockReleased {
    pub order_id: OrderId,
    pub lines: Vec<StockLine>,
}

/// Payment's receipt: it holds no money of the order. `amount` is the total that was refunded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentRefunded {
    pub order_id: OrderId,
    pub payment_id: PaymentId,
    pub amount: Money,
}

/// The saga's deadline has passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaTimedOut {
    pub saga_id: Uuid,
    pub saga_type: String,
    pub order_id: OrderId,
    #[serde(with = "time::serde::rfc3339")]
    pub deadline: OffsetDateTime,
    /// The last forward step that was done.
    pub current_step: u8,
    /// Its name. This and what follows is absent from the events of earlier builds.
    #[serde(default)]
    pub step: Option<String>,
    /// The wire name of the saga's last event; null if that was published at the same moment.
    #[serde(default)]
    pub last_event_type: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub started_at: Option<OffsetDateTime>,
    /// Milliseconds from the saga's start until the timeout was detected, by the database's clock.
    #[serde(default)]
    pub elapsed_ms: Option<i64>,
    /// The service that has detected it.
    #[serde(default)]
    pub detected_by: Option<String>,
}

macro_rules! event {
    ($name:ident, $aggregate:literal, $publishers:expr, $refusal:expr) => {
        impl Event for $name {
            const TYPE: EventType = EventType {
                name: stringify!($name),
                version: 1,
                aggregate: $aggregate,
                publishers: $publishers,
                refusal: $refusal,
            };

            fn aggregate_id(&self) -> String {
                self.order_id.to_string()
            }
        }
    };
    ($name:ident, $aggregate:literal, $publishers:expr) => {
        event!($name, $aggregate, $publishers, false);
    };
}

/// Refusals are events: breakers do not count them, and they are not retried.
const REFUSAL: bool = true;

const BY_ORDER: &[Service] = &[ORDER];
const BY_INVENTORY: &[Service] = &[INVENTORY];
const BY_PAYMENT: &[Service] = &[PAYMENT];

event!(OrderCreated, "order", BY_ORDER);
event!(OrderConfirmed, "order", BY_ORDER);
event!(OrderCancelled, "order", BY_ORDER);
event!(StockReserved, "reservation", BY_INVENTORY);
event!(StockReservationFailed, "reservation", BY_INVENTORY, REFUSAL);
event!(StockReleased, "reservation", BY_INVENTORY);
event!(PaymentProcessed, "payment", BY_PAYMENT);
event!(PaymentFailed, "payment", BY_PAYMENT, REFUSAL);
event!(PaymentRefunded, "payment", BY_PAYMENT);
event!(SagaTimedOut, "saga", &SERVICES);

impl Refusal for StockReservationFailed {
    fn reason(&self) -> String {
        self.reason.clone()
    }
}

impl Refusal for PaymentFailed {
    fn reason(&self) -> String {
        format!("declined: {}", self.decline_code)
    }
}

impl Timeout for SagaTimedOut {
    fn of(saga: Expired) -> Self {
        // A saga that can time out is before its pivot.
        let taken = |s: &&&saga::Step| s.number == saga.current_step && matches!(s.kind, Kind::Compensatable { .. });
        let step = super::SAGA.steps.iter().find(taken);
        SagaTimedOut {
            saga_id: saga.saga_id,
            saga_type: super::SAGA.saga_type.to_owned(),
            order_id: OrderId(saga.business_key),
            deadline: saga.deadline,
            current_step: saga.current_step,
            step: step.map(|step| step.name.to_owned()),
            last_event_type: saga.last_event_type,
            started_at: Some(saga.started_at),
            elapsed_ms: Some(saga.elapsed_ms),
            detected_by: Some(saga.detected_by),
        }
    }
}

/// Is called with each event of the saga, by [`visit_events`].
pub trait EventVisitor {
    fn visit<E: Event + ToSchema>(&mut self);
}

pub fn visit_events(visitor: &mut impl EventVisitor) {
    visitor.visit::<OrderCreated>();
    visitor.visit::<OrderConfirmed>();
    visitor.visit::<OrderCancelled>();
    visitor.visit::<StockReserved>();
    visitor.visit::<StockReservationFailed>();
    visitor.visit::<StockReleased>();
    visitor.visit::<PaymentProcessed>();
    visitor.visit::<PaymentFailed>();
    visitor.visit::<PaymentRefunded>();
    visitor.visit::<SagaTimedOut>();
}
