//! Tests of messaging alone, each against its own database and broker: a bell rings, and the door is opened.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod consumer;
mod examples;
mod house;
mod outbox;
mod replication;
mod topology;
