//! The saga `OrderFulfillment`: its steps, their services, triggers and events, and their compensations.
//! Consumers, filters, retries, labels and the diagram in docs/saga.md are derived from this table.
//! The defaults of a row: three attempts, 500 ms apart, doubling, with full jitter; a breaker that opens
//! for 10 s when half of the last 10 calls failed; a time limit of 60 s for one run.

pub mod events;

use std::time::Duration;

pub use events::{
    CancelReason, OrderCancelled, OrderConfirmed, OrderCreated, OrderLine, PaymentFailed, PaymentProcessed,
    PaymentRefunded, SagaTimedOut, Shortage, StockLine, StockReleased, StockReservationFailed, StockReserved,
};
use saga::{Breaker, CompensationPolicy, Event, Kind, Retry, SagaDefinition, Step, StepOn};

use crate::{INVENTORY, ORDER, PAYMENT};

pub static SAGA: SagaDefinition = SagaDefinition {
    saga_type: "OrderFulfillment",
    steps: &[
        &CREATE_ORDER,
        &RESERVE_STOCK.step,
        &PROCESS_PAYMENT.step,
        &CONFIRM_ORDER.step,
        &CANCEL_UNFILLABLE_ORDER.step,
        &CANCEL_UNPAID_ORDER.step,
        &DETECT_TIMEOUT,
        &CANCEL_TIMED_OUT_ORDER.step,
        &CANCEL_ORDER_ON_REQUEST,
        &DRIVE_COMPENSATION,
        &RELEASE_STOCK.step,
        &REFUND_PAYMENT.step,
    ],
    deadline: Duration::from_secs(60),
    compensation: CompensationPolicy { deadline: Duration::from_secs(60), max_attempts: 5 },
    terminal: &[OrderConfirmed::TYPE, StockReleased::TYPE, PaymentRefunded::TYPE],
};

/// Order accepts the customer's order, at its own prices.
pub static CREATE_ORDER: Step = Step::on_request(
    0,
    "create_order",
    ORDER,
    &[OrderCreated::TYPE],
    Kind::Compensatable {
        by: &["cancel_unfillable_order", "cancel_unpaid_order", "cancel_timed_out_order", "cancel_order_on_request"],
    },
);

/// Inventory reserves all lines or none.
pub static RESERVE_STOCK: StepOn<OrderCreated> = StepOn::new(
    1,
    "reserve_stock",
    INVENTORY,
    &[StockReserved::TYPE, StockReservationFailed::TYPE],
    Kind::Compensatable { by: &["release_stock"] },
);

/// Payment charges the customer's card, once.
pub static PROCESS_PAYMENT: StepOn<StockReserved> = StepOn::new(
    2,
    "process_payment",
    PAYMENT,
    &[PaymentProcessed::TYPE, PaymentFailed::TYPE],
    Kind::Compensatable { by: &["refund_payment"] },
)
.retry(Retry { attempts: 5, initial: Duration::from_secs(1), ..Retry::DEFAULT })
.breaker(Breaker { failure_rate: 0.6, open_for: Duration::from_secs(5), ..Breaker::DEFAULT });

/// The pivot: the order is confirmed, the saga is COMPLETED.
pub static CONFIRM_ORDER: StepOn<PaymentProcessed> =
    StepOn::new(3, "confirm_order", ORDER, &[OrderConfirmed::TYPE], Kind::Pivot);

pub static CANCEL_UNFILLABLE_ORDER: StepOn<StockReservationFailed> =
    StepOn::new(0, "cancel_unfillable_order", ORDER, &[OrderCancelled::TYPE], Kind::Cancellation);

pub static CANCEL_UNPAID_ORDER: StepOn<PaymentFailed> =
    StepOn::new(0, "cancel_unpaid_order", ORDER, &[OrderCancelled::TYPE], Kind::Cancellation);

/// Taken by the first service that detects that the deadline has passed.
pub static DETECT_TIMEOUT: Step = Step::on_deadline("detect_timeout", &[SagaTimedOut::TYPE], Kind::Retriable);

pub static CANCEL_TIMED_OUT_ORDER: StepOn<SagaTimedOut> =
    StepOn::new(0, "cancel_timed_out_order", ORDER, &[OrderCancelled::TYPE], Kind::Cancellation);

/// The customer cancels: while the order is pending, or after it was confirmed.
pub static CANCEL_ORDER_ON_REQUEST: Step =
    Step::on_request(0, "cancel_order_on_request", ORDER, &[OrderCancelled::TYPE], Kind::Cancellation);

/// The receipts of a cancellation are overdue, or an operator resumes it: the cancellation is published again.
/// "Drive" stands in released journals and metrics: the compensation is retried.
pub static DRIVE_COMPENSATION: Step =
    Step::on_deadline("drive_compensation", &[OrderCancelled::TYPE], Kind::Cancellation).by(ORDER);

/// Inventory releases what it holds for the order; it publishes its receipt also when it holds nothing.
pub static RELEASE_STOCK: StepOn<OrderCancelled> =
    StepOn::new(1, "release_stock", INVENTORY, &[StockReleased::TYPE], Kind::Compensation);

/// Payment refunds what it charged; it publishes its receipt also when it charged nothing.
pub static REFUND_PAYMENT: StepOn<OrderCancelled> =
    StepOn::new(2, "refund_payment", PAYMENT, &[PaymentRefunded::TYPE], Kind::Compensation).retry(Retry {
        attempts: 5,
        initial: Duration::from_secs(1),
        ..Retry::DEFAULT
    });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_complete() {
        assert_eq!(SAGA.check(), Vec::<String>::new());
    }

    #[test]
    fn a_missing_reader_publisher_or_compensation_is_reported() {
        let without = |gone: &'static str| -> Vec<String> {
            let steps: Vec<&'static Step> = SAGA.steps.iter().copied().filter(|s| s.name != gone).collect();
            SagaDefinition { steps: steps.leak(), ..SAGA }.check()
        };
        for step in SAGA.steps {
            // A retry adds no event and no reader.
            let reported = step.name == "drive_compensation" || !without(step.name).is_empty();
            assert!(reported, "the check misses that {} is gone", step.name);
        }
    }

    #[test]
    fn refusals_deadlines_and_requests_fail_a_saga() {
        let named = |which: fn(&Step) -> bool| -> Vec<&str> {
            SAGA.steps.iter().copied().filter(|s| which(s)).map(|s| s.name).collect()
        };
        let failing = ["reserve_stock", "process_payment", "detect_timeout", "cancel_order_on_request"];
        assert_eq!(named(Step::can_fail_saga), failing);
        let starting = named(|step| SAGA.starts_compensation(step));
        assert_eq!(starting.len(), 5);
        let compensating = named(Step::is_compensating);
        assert_eq!(compensating, [&starting[..], &["release_stock", "refund_payment"]].concat());
        assert!(starting.iter().all(|name| name.starts_with("cancel_") || *name == "drive_compensation"));
    }

    #[test]
    fn a_completed_saga_has_four_steps_and_two_participants_can_undo() {
        assert_eq!(SAGA.total_steps(), 4);
        assert_eq!(SAGA.participants().collect::<Vec<_>>(), [INVENTORY, PAYMENT]);
    }
}
