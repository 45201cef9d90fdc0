//! What the business wants to see of inventory, counted from the steps that were committed.

use std::fmt;

use contracts::order_fulfillment::RESERVE_STOCK;
use messaging::metrics::{Metrics, StepStatusLabel};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter},
};

/// Orders that could not be filled.
#[derive(Debug)]
pub(crate) struct StockRefusals(pub(crate) Metrics);

impl Collector for StockRefusals {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let label = StepStatusLabel { step: RESERVE_STOCK.name, status: "FAILED" };
        let refused = self.0.saga_steps.get_or_create_owned(&label).get();
        let help = "Orders that could not be filled";
        let counter = encoder.encode_descriptor("stock_refusals", help, None, MetricType::Counter)?;
        ConstCounter::new(refused).encode(counter)
    }
}
