//! The steps of the payment service against a real database, with a gateway that does what a test tells it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod charge;
mod http_gateway;
mod lab;
mod races;
mod refund;
mod routes;
mod scripted_gateway;
