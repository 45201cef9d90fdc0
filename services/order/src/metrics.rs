//! What the business wants to see: orders by how they ended, and revenue. Counted from the steps that were committed.

use std::fmt;

use contracts::{
    Currency, Money,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CANCEL_TIMED_OUT_ORDER, CANCEL_UNFILLABLE_ORDER, CANCEL_UNPAID_ORDER, CONFIRM_ORDER,
        CREATE_ORDER, DRIVE_COMPENSATION, SAGA,
    },
};
use messaging::metrics::{Metrics, SagaStep, StepStatusLabel};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CurrencyLabel {
    currency: String,
}

/// The value of the confirmed orders: the one thing here that a step has to count itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Revenue(Family<CurrencyLabel, Counter>);

impl Revenue {
    /// To be counted once the confirmation is committed.
    pub(crate) fn count(&self, total: Money) -> impl FnOnce(&Metrics) + Send + use<> {
        let revenue = self.clone();
        move |_| {
            revenue.of(total.currency).inc_by(total.amount.unsigned_abs());
        }
    }

    fn of(&self, currency: Currency) -> Counter {
        self.0.get_or_create_owned(&CurrencyLabel { currency: currency.to_string() })
    }
}

/// Registers the counters.
pub(crate) fn register(registry: &mut Registry, steps: Metrics) -> Revenue {
    let revenue = Revenue::default();
    // The first order is seen as an increase only when there was a zero before.
    drop(revenue.of(Currency::USD));
    let help = "Value of the confirmed orders; what is given back later is not taken off";
    registry.register("revenue_minor_units", help, revenue.0.clone());
    registry.register_collector(Box::new(Orders(steps)));
    revenue
}

/// Registers the counter of idempotency keys that stand for nothing any more.
pub(crate) fn register_forgotten_keys(registry: &mut Registry) -> Counter {
    let forgotten = Counter::default();
    let help = "Idempotency keys that were deleted for their age: under each of them another order can be placed";
    registry.register("idempotency_keys_forgotten", help, forgotten.clone());
    forgotten
}

/// Why orders are cancelled, and by which steps.
const CANCELLED: [(&str, &[&str]); 4] = [
    ("out_of_stock", &[CANCEL_UNFILLABLE_ORDER.step.name]),
    ("payment_refused", &[CANCEL_UNPAID_ORDER.step.name]),
    // The second one cancels what timed out and nobody has cancelled.
    ("timed_out", &[CANCEL_TIMED_OUT_ORDER.step.name, DRIVE_COMPENSATION.name]),
    ("customer_request", &[CANCEL_ORDER_ON_REQUEST.name]),
];

#[derive(Debug)]
struct Orders(Metrics);

impl Orders {
    fn done(&self, step: &'static str) -> u64 {
        self.0.saga_steps.get_or_create_owned(&StepStatusLabel { step, status: "COMPLETED" }).get()
    }

    /// An order is cancelled by the very step that has its saga undone.
    fn cancelled(&self, step: &'static str) -> u64 {
        self.0.saga_compensations_started.get_or_create_owned(&SagaStep { saga_type: SAGA.saga_type, step }).get()
    }
}

impl Collector for Orders {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (name, help, step) in [
            ("orders_accepted", "Orders accepted", CREATE_ORDER.name),
            ("orders_confirmed", "Orders confirmed; a customer may yet cancel one", CONFIRM_ORDER.name),
        ] {
            let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(self.done(step)).encode(counter)?;
        }
        let help = "Orders cancelled, by reason";
        let mut family = encoder.encode_descriptor("orders_cancelled", help, None, MetricType::Counter)?;
        for (reason, steps) in CANCELLED {
            let cancelled: u64 = steps.iter().map(|step| self.cancelled(step)).sum();
            ConstCounter::new(cancelled).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}
