//! The step transaction and the three phases against a real database, with a saga of two steps.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod behind_pivot;
mod example;
mod lab;
mod step;
mod three_phases;
