//! Business metrics of inventory, derived from the committed steps.

use contracts::order_fulfillment::RESERVE_STOCK;
use messaging::metrics::{Metrics, StepStatusLabel};
use prometheus_client::metrics::counter::{ConstCounter, Counter};

/// Registers the counter of orders that could not be filled, and that of replenished units, which is returned.
pub(crate) fn register(metrics: &bootstrap::Metrics, steps: Metrics) -> Counter {
    let replenished = Counter::default();
    let help = "Units supplied to products, on request or automatically";
    metrics.register(|registry| registry.register("stock_replenished_units", help, replenished.clone()));
    let label = StepStatusLabel { step: RESERVE_STOCK.name, status: "FAILED" };
    metrics.on_scrape(move |scrape| {
        let refused = steps.saga_steps.get_or_create_owned(&label).get();
        scrape.one("stock_refusals", "Orders that could not be filled", ConstCounter::new(refused))
    });
    replenished
}
