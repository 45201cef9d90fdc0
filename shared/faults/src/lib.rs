// The page's example arms a fault.
#![cfg_attr(feature = "inject", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "inject"), doc = "Fault points, in a build without the feature `inject`.")]
#![cfg_attr(test, allow(clippy::expect_used, reason = "a failed expectation fails the test"))]

/// Methods that set one optional field each.
macro_rules! setters {
    ($($(#[$doc:meta])* $owner:ident.$field:ident: $name:ident($kind:ty),)*) => {$(
        impl $owner {
            $(#[$doc])*
            pub fn $name(mut self, value: $kind) -> Self {
                self.$field = Some(value.into());
                self
            }
        }
    )*};
}

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
