//! Faults on purpose: named points in the code, and what can be made to happen there. Nothing is armed unless somebody
//! arms it, every fault expires, and business code never sees this crate. Without the feature `inject` the points are
//! still there, but [`Faults`] is a zero-sized type at which nothing can happen.

#![cfg_attr(test, allow(clippy::expect_used, reason = "an expectation that fails is a test that fails"))]

mod point;
mod subject;

#[cfg(not(feature = "inject"))]
mod absent;
#[cfg(all(test, not(feature = "inject")))]
mod absent_tests;

#[cfg(feature = "inject")]
mod armed;
#[cfg(feature = "inject")]
mod plan;
#[cfg(feature = "inject")]
mod registry;
#[cfg(feature = "inject")]
mod spec;

#[cfg(all(test, feature = "inject"))]
mod crash_tests;
#[cfg(all(test, feature = "inject"))]
mod hit_tests;
#[cfg(all(test, feature = "inject"))]
mod life_tests;
#[cfg(all(test, feature = "inject"))]
mod model_tests;
#[cfg(all(test, feature = "inject"))]
mod shared_tests;
#[cfg(all(test, feature = "inject"))]
mod spec_tests;

#[cfg(not(feature = "inject"))]
pub use absent::Faults;
pub use point::{FaultPoint, Guard, Injected, Kind, Pass, UnknownName};
pub use subject::Subject;

#[cfg(feature = "inject")]
pub use {
    armed::Armed,
    plan::PlanError,
    registry::{Counter, Faults, Hit, Sink},
    spec::{FaultSpec, Refused, Scope},
};
