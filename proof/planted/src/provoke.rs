//! The provocations: crashes, duplicates, losses and races, each harmless to a suite without the mistake.

pub mod broker;
pub mod consumer;
pub mod database;
pub mod gateway;
pub mod relay;
pub mod saga;
pub mod stock;
