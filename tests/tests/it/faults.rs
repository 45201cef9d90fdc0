//! Faults on purpose: every kind at every point where it can happen, what is outside a fault's scope, and the routes.

mod crashes;
mod matrix;
mod replicas;
mod routes;
mod scope;
