//! Metrics, dashboards and alerts: every query returns data, and alerts arrive.

mod boards;
mod causes;
mod cluster;
mod empty_until;
mod interpolation;
mod live;
mod monitored;
mod orders;
mod queries;
mod structure;
