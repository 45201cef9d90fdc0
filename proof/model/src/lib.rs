//! The whole saga under a model checker: three services with their rows, outboxes and inboxes, streams that lose, duplicate and
//! reorder messages, a card processor, two timeout detectors, a customer who cancels at any time, an operator, and a crash
//! between every two effects.
//!
//! The decisions are those of production: the model calls `order::domain`, `inventory::domain`, `payment::domain` and
//! `saga::SagaState::apply`, and takes the readers of each event from the saga's table. A SQL statement that contains a decision
//! is modelled by its effect, and named at that place. A transaction is one action, because a crash within it has no effect.
//!
//! Every step makes progress (a property of its own), so every run ends; a world in which nothing is left that must happen is at
//! rest, and at rest every order has ended. It follows that every order ends.

#![cfg_attr(test, allow(clippy::expect_used, reason = "an expectation that fails is a test that fails"))]

pub mod action;
mod bounds;
pub mod check;
pub mod gateway;
mod inventory;
pub mod mail;
mod order;
pub mod payment;
pub mod property;
mod step;
pub mod twin;
pub mod world;

pub use action::Action;
pub use bounds::{Bounds, Guards};
pub use world::World;

/// The saga within bounds.
#[derive(Debug, Clone, Copy)]
pub struct Saga {
    pub bounds: Bounds,
    pub guards: Guards,
}

impl Saga {
    /// With all guards in effect.
    pub fn new(bounds: Bounds) -> Self {
        Saga { bounds, guards: Guards::ALL }
    }
}

#[cfg(test)]
mod tests;
