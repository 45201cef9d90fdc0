//! Metrics, dashboards and alerts: that every query answers, and that alerts arrive.

mod boards;
mod causes;
mod empty_until;
mod interpolation;
mod live;
mod monitored;
mod orders;
mod queries;
mod structure;
