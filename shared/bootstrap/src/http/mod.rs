//! The HTTP shell around a service's routes: the common behaviour of all responses, so that handlers contain only their own
//! logic. [`assemble`] composes it, [`serve`] runs it.

mod admin;
mod context;
mod extract;
mod guard;
mod observe;
mod openapi;
mod operations;
mod page;
mod problem;
mod segment;
mod serve;
mod shell;

pub use admin::ByOperator;
pub use context::{CORRELATION_ID, RequestContext, TRACEPARENT};
pub use extract::{Filtered, Json, Path, Query, object, objects};
pub(crate) use guard::panic_text;
pub use openapi::{ServiceInfo, openapi};
pub use page::{Page, PageQuery};
pub(crate) use problem::chain;
pub use problem::{FieldError, JsonResult, PROBLEM_JSON, Problem};
pub use segment::path_segment;
pub use serve::serve;
pub use shell::{Shell, assemble, starting};
