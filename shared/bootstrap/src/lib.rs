//! The parts of a service that are not business logic: configuration, telemetry, database and broker connections, the HTTP shell
//! and an orderly start and stop. [`run`] combines them, so that a service's `main` is a composition root of one page. This crate
//! does not depend on sagas or messaging.

pub mod config;
mod error;
pub mod http;
pub mod lifecycle;
pub mod metrics;
pub mod nats;
pub mod postgres;
mod process;
pub mod readiness;
pub mod telemetry;
mod wait;
pub mod write;

pub use config::{AppEnv, BaseArgs, HttpArgs, NatsArgs, PostgresArgs, Secret, TelemetryArgs};
pub use error::StartError;
pub use http::{Filtered, Json, JsonResult, Page, PageQuery, Path, Problem, Query, RequestContext, ServiceInfo, Shell};
pub use lifecycle::{Service, Startup, Task, TaskFailed, Tasks, run};
pub use metrics::Metrics;
pub use postgres::Pools;
pub use readiness::{Readiness, ReadyFlag};
pub use tokio_util::sync::CancellationToken;
pub use write::{WriteBatcher, detached, detached_within};
