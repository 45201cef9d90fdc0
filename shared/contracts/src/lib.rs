//! What the services may know of each other, and nothing else: ids, money, events, the
//! manifest of the participants, and their saga. No IO.

pub mod catalogue;
pub mod charge;
mod ids;
mod iso_4217;
mod manifest;
mod money;
pub mod order_fulfillment;

pub use ids::{InvalidSku, OrderId, PaymentId, SagaId, Sku};
pub use iso_4217::{ISO_4217, iso_4217_schema};
pub use manifest::*;
pub use money::{Currency, InvalidCurrency, Money, MoneyError};

use saga::{Service, Step};

/// A durable consumer that must exist: one per step and publisher of the step's trigger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Consumer {
    pub step: &'static Step,
    pub service: Service,
    pub publisher: Service,
}

/// Every durable consumer of the suite, read off the tables of steps.
pub fn consumers() -> Vec<Consumer> {
    let steps = order_fulfillment::SAGA.steps.iter().chain(catalogue::PROJECTIONS);
    let mut all = Vec::new();
    for step in steps.copied() {
        let (Some(service), Some(event)) = (step.service, step.consumes()) else { continue };
        all.extend(event.publishers.iter().map(|publisher| Consumer { step, service, publisher: *publisher }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_whose_trigger_has_several_publishers_has_a_consumer_per_stream() {
        let of = |name: &str| consumers().iter().filter(|c| c.step.name == name).count();
        assert_eq!(of("reserve_stock"), 1);
        assert_eq!(of("cancel_timed_out_order"), SERVICES.len());
    }
}
