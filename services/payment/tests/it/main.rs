//! The steps of the payment service on a real database, with a scripted gateway.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod charge;
mod commands;
mod http_gateway;
mod lab;
mod races;
mod refund;
mod routes;
mod scripted_gateway;
