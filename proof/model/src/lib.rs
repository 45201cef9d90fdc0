//! The whole saga under a model checker: three services with their rows, outboxes and inboxes, streams that lose,
//! repeat and reorder, a card processor, two timeout detectors, a customer who cancels at any time, an operator, and a
//! crash between every two effects.
//!
//! The decisions are not retold here: the model calls the functions that run in production (`order::domain`,
//! `inventory::domain`, `payment::domain`, `saga::SagaState::apply`) and reads who reads what from the saga's table.
//! What a SQL statement decides is modelled by what the statement does, and said where it is. A transaction is one
//! action, because a crash within it leaves nothing behind.
//!
//! Every step brings the world closer to an end (a property of its own), so every run ends; a world in which nothing
//! is left that must happen is at rest, and at rest every order has ended. Together: every order ends.

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
    /// With all guards up.
    pub fn new(bounds: Bounds) -> Self {
        Saga { bounds, guards: Guards::ALL }
    }
}

#[cfg(test)]
mod tests;
