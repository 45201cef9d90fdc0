//! The step transaction and the three phases on a real database, with a saga of two steps.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod after_pivot;
mod example;
mod lab;
mod step;
mod three_phases;
