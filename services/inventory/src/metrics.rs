//! Business metrics of inventory: refused orders, and replenished units.

use messaging::Metrics;
use prometheus_client::{metrics::counter::Counter, registry::Registry};

/// Refused orders, also those that a coordinator commanded to reserve.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Counter);

impl Refusals {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let this = Refusals::default();
        let help = "Orders that could not be filled, choreographed and orchestrated";
        registry.register("stock_refusals", help, this.0.clone());
        this
    }

    /// Counts after the refusal is committed.
    pub(crate) fn count(&self) -> impl FnOnce(&Metrics) + Send + use<> {
        let refused = self.0.clone();
        move |_| {
            refused.inc();
        }
    }
}

/// Registers the counter of replenished units.
pub(crate) fn register_replenished(registry: &mut Registry) -> Counter {
    let replenished = Counter::default();
    let help = "Units supplied to products, on request or automatically";
    registry.register("stock_replenished_units", help, replenished.clone());
    replenished
}
