//! The edges of a process, where faults come in from outside: requests that arrive, and calls to another system.

mod calls;
#[cfg(feature = "faults")]
mod requests;

pub use calls::{CallError, Calls, Declines, hit_calls};
#[cfg(feature = "faults")]
pub(crate) use requests::hit_request;
