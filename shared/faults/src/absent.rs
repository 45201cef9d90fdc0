//! What is left of the faults in a build without them: a type of no size, whose every answer the compiler knows.

use crate::{FaultPoint, Guard, Injected, Pass, Subject};

/// No faults, now or ever.
#[derive(Debug, Clone, Default)]
pub struct Faults(());

impl Faults {
    /// No faults, now or ever.
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

    /// Passes unharmed. Nobody asks what the pass is about.
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
