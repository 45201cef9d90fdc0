//! The contracts between the services: ids, money, events, the manifest of the participants, and their saga. No IO.

pub mod catalogue;
pub mod charge;
mod ids;
mod iso_4217;
mod manifest;
mod money;
pub mod orchestrated;
pub mod order_fulfillment;

pub use ids::{InvalidSku, OrderId, PaymentId, SagaId, Sku};
pub use iso_4217::{ISO_4217, iso_4217_schema};
pub use manifest::*;
pub use money::{Currency, InvalidCurrency, Money, MoneyError};
pub use saga::Consumer;

use saga::Step;

/// Every step of the suite: of its saga, and of its projections.
pub fn steps() -> impl Iterator<Item = &'static Step> {
    order_fulfillment::SAGA.steps.iter().chain(catalogue::PROJECTIONS).copied()
}

/// Every durable consumer of the suite, derived from the tables of steps.
pub fn consumers() -> Vec<Consumer> {
    saga::consumers(steps())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_a_consumer_per_publisher_of_its_trigger() {
        let of = |name: &str| consumers().iter().filter(|c| c.step.name == name).count();
        assert_eq!(of("reserve_stock"), 1);
        assert_eq!(of("cancel_timed_out_order"), SERVICES.len());
    }
}
