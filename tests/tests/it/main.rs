//! The guarantees of the suite, each as a test that fails when it breaks.

#![expect(clippy::expect_used, clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod actions;
mod arrows;
mod audit;
mod breakers;
mod broker;
mod catalogue;
mod compensations;
mod compose;
mod connections;
mod consumers;
mod contract;
mod database;
mod dead_letters;
mod deliveries;
mod detectors;
mod documents;
mod explain;
mod faults;
mod hostile;
mod idempotency;
mod input;
mod journey;
mod limits;
mod manifest;
mod messages;
mod metrics;
mod model;
mod observability;
mod overtaking;
mod parked;
mod plans;
mod prelude;
mod processes;
mod redelivery;
mod refusals;
mod relay;
mod saga_paths;
mod settings;
mod sources;
mod tls;
mod traces;
mod trip_booking;
mod tutorial;
mod windows;
