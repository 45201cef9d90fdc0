//! Injected faults: every kind at every point where it can happen, the scope of a fault, and the routes.

mod crashes;
mod matrix;
mod replicas;
mod routes;
mod scope;
