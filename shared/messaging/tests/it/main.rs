//! Messaging alone, against a database and a broker of its own: a bell rings, and the door is opened.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod consumer;
mod examples;
mod house;
mod outbox;
