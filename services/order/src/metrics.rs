//! What the business wants to see: orders by how they ended, and revenue. Counted from the steps that were committed.

use std::fmt;

use messaging::metrics::{Metrics, StepStatusLabel};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CurrencyLabel {
    pub(crate) currency: String,
}

pub(crate) type Revenue = Family<CurrencyLabel, Counter>;

/// Registers the counters; the revenue is the one that steps count themselves.
pub(crate) fn register(registry: &mut Registry, steps: Metrics) -> Revenue {
    let revenue = Revenue::default();
    let help = "Value of the confirmed orders";
    registry.register("revenue_minor_units", help, revenue.clone());
    registry.register_collector(Box::new(Orders(steps)));
    revenue
}

/// Which step ends an order how.
const CANCELLED: [(&str, &str); 4] = [
    ("cancel_unfillable_order", "out_of_stock"),
    ("cancel_unpaid_order", "payment_refused"),
    ("cancel_timed_out_order", "timed_out"),
    ("cancel_order_on_request", "customer_request"),
];

#[derive(Debug)]
struct Orders(Metrics);

impl Orders {
    fn done(&self, step: &'static str) -> u64 {
        self.0.saga_steps.get_or_create(&StepStatusLabel { step, status: "COMPLETED" }).get()
    }
}

impl Collector for Orders {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (name, help, step) in [
            ("orders_accepted", "Orders accepted", "create_order"),
            ("orders_confirmed", "Orders confirmed", "confirm_order"),
        ] {
            let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(self.done(step)).encode(counter)?;
        }
        let help = "Orders cancelled, by reason";
        let mut family = encoder.encode_descriptor("orders_cancelled", help, None, MetricType::Counter)?;
        for (step, reason) in CANCELLED {
            ConstCounter::new(self.done(step)).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}
