//! The replacement of the registry in a build without faults: a zero-sized type, whose results are known at compile time.

use crate::{FaultPoint, Guard, Injected, Pass, Subject};

/// A registry that never has faults.
#[derive(Debug, Clone, Default)]
pub struct Faults(());

impl Faults {
    /// A registry that never has faults.
    #[inline]
    pub const fn none() -> Self {
        Faults(())
    }

    /// Nothing is ever armed.
    #[inline]
    pub const fn is_armed(&self) -> bool {
        false
    }

    /// Nothing is ever armed.
    #[inline]
    pub fn concerns(&self, _points: &[FaultPoint], _subject: impl FnOnce() -> Subject) -> bool {
        false
    }

    /// Passes unharmed; `subject` is not called.
    #[inline]
    pub async fn at(&self, _point: FaultPoint, _subject: impl FnOnce() -> Subject) -> Result<Pass, Injected> {
        Ok(Pass::Unharmed)
    }

    /// No mechanism can be switched off.
    #[inline]
    pub const fn without(&self, _guard: Guard) -> bool {
        false
    }
}
