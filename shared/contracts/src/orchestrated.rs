//! The same order fulfilment as [`order_fulfillment`](crate::order_fulfillment), *orchestrated*: a coordinator in the order
//! service commands each step over HTTP, and stores each transition before it acts on it. The participants answer a command that
//! is repeated as they answered it first, by its saga and its step, and publish nothing.
//!
//! The defaults of a row are those of the choreographed saga. A command is repeated within its step's limit.

use std::time::Duration;

use saga::{Breaker, CompensationPolicy, Kind, Retry, SagaDefinition, Step};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{INVENTORY, Money, ORDER, OrderId, PAYMENT, SagaId, order_fulfillment::OrderLine};

pub static SAGA: SagaDefinition = SagaDefinition {
    saga_type: "OrderFulfillmentOrchestrated",
    steps: &[
        &CREATE_ORDER,
        &RESERVE_STOCK,
        &PROCESS_PAYMENT,
        &CONFIRM_ORDER,
        &CANCEL_ORDER,
        &DETECT_TIMEOUT,
        &CANCEL_ORDER_ON_REQUEST,
        &DRIVE_COMPENSATION,
        &REFUND_PAYMENT,
        &RELEASE_STOCK,
    ],
    deadline: Duration::from_secs(60),
    compensation: CompensationPolicy { deadline: Duration::from_secs(60), max_attempts: 5 },
    terminal: &[],
};

/// A command is repeated until its step's limit has passed.
const COMMANDED: Retry = Retry { attempts: 60, max: Duration::from_secs(1), ..Retry::DEFAULT };
/// A participant that is back is asked again well within that limit.
const PROBED: Breaker = Breaker { open_for: Duration::from_secs(2), ..Breaker::DEFAULT };

/// Order accepts the customer's order, at its own prices.
pub static CREATE_ORDER: Step = Step::on_request(
    0,
    "create_order",
    ORDER,
    &[],
    Kind::Compensatable { by: &["cancel_order", "cancel_order_on_request"] },
);

/// Inventory reserves all lines or none.
pub static RESERVE_STOCK: Step =
    Step::on_command(1, "reserve_stock", INVENTORY, Kind::Compensatable { by: &["release_stock"] })
        .within(Duration::from_secs(15))
        .retry(COMMANDED)
        .breaker(PROBED);

/// Payment charges the customer's card, once.
pub static PROCESS_PAYMENT: Step =
    Step::on_command(2, "process_payment", PAYMENT, Kind::Compensatable { by: &["refund_payment"] })
        .within(Duration::from_secs(15))
        .retry(COMMANDED)
        .breaker(PROBED);

/// The pivot, taken by the coordinator's own service in the transaction that stores the payment's answer.
pub static CONFIRM_ORDER: Step = Step::on_command(3, "confirm_order", ORDER, Kind::Pivot);

/// A participant refused, a step's limit has passed without an answer, or the saga's deadline.
pub static CANCEL_ORDER: Step = Step::on_command(0, "cancel_order", ORDER, Kind::Cancellation);

/// The coordinator finds that the saga's deadline has passed.
pub static DETECT_TIMEOUT: Step = Step::on_deadline("detect_timeout", &[], Kind::Retriable);

/// The customer cancels: while the order is pending, or after it was confirmed.
pub static CANCEL_ORDER_ON_REQUEST: Step =
    Step::on_request(0, "cancel_order_on_request", ORDER, &[], Kind::Cancellation);

/// An undo got no answer within its limit, or an operator resumes it: the next attempt begins.
pub static DRIVE_COMPENSATION: Step = Step::on_deadline("drive_compensation", &[], Kind::Cancellation).by(ORDER);

/// Payment refunds what it charged, and answers also when it charged nothing. Steps are undone in reverse.
pub static REFUND_PAYMENT: Step = Step::on_command(2, "refund_payment", PAYMENT, Kind::Compensation)
    .within(Duration::from_secs(15))
    .retry(COMMANDED)
    .breaker(PROBED);

/// Inventory releases what it holds for the order, and answers also when it holds nothing.
pub static RELEASE_STOCK: Step = Step::on_command(1, "release_stock", INVENTORY, Kind::Compensation)
    .within(Duration::from_secs(10))
    .retry(COMMANDED)
    .breaker(PROBED);

/// The path of a participant's command.
pub fn path(step: &Step) -> &'static str {
    match step.name {
        "reserve_stock" => "/api/saga/inventory/reserve-stock",
        "release_stock" => "/api/saga/inventory/release-stock",
        "process_payment" => "/api/saga/payment/process",
        _ => "/api/saga/payment/refund",
    }
}

/// Reserve the stock of an order
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveStock {
    pub saga_id: SagaId,
    pub order_id: OrderId,
    #[schema(min_items = 1, max_items = 100)]
    pub lines: Vec<OrderLine>,
}

/// Release what an order holds
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseStock {
    pub saga_id: SagaId,
    pub order_id: OrderId,
}

/// Charge an order's card, or refund what was charged
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    pub saga_id: SagaId,
    pub order_id: OrderId,
    pub total: Money,
    pub payment_method: String,
}

/// A participant's answer to a command; the same for every repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Answer {
    Done,
    /// For a business reason; nothing is held. An undo is never refused.
    Refused {
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_complete() {
        assert_eq!(SAGA.check(), Vec::<String>::new());
        assert!(SAGA.is_orchestrated());
    }

    #[test]
    fn it_has_the_steps_of_its_twin() {
        let twin = &crate::order_fulfillment::SAGA;
        assert_eq!(SAGA.total_steps(), twin.total_steps());
        let mut participants: Vec<_> = SAGA.participants().collect();
        participants.sort_unstable_by_key(|service| service.0);
        assert_eq!(participants, twin.participants().collect::<Vec<_>>());
    }

    /// What participants are commanded.
    fn commands() -> impl Iterator<Item = &'static Step> {
        SAGA.steps.iter().copied().filter(|s| s.on == saga::Trigger::Command && s.service != Some(ORDER))
    }

    #[test]
    fn every_command_of_a_participant_has_a_path_of_its_own() {
        let paths: std::collections::HashSet<_> = commands().map(path).collect();
        assert_eq!((commands().count(), paths.len()), (4, 4));
    }

    #[test]
    fn the_limits_of_all_commands_fit_into_the_deadline() {
        let limits: Vec<_> = commands().map(|step| (step.name, step.time_limit.as_secs())).collect();
        assert_eq!(
            limits,
            [("reserve_stock", 15), ("process_payment", 15), ("refund_payment", 15), ("release_stock", 10)]
        );
        assert_eq!(SAGA.deadline, Duration::from_secs(60));
        assert!(commands().map(|step| step.time_limit).sum::<Duration>() <= SAGA.deadline);
    }
}
