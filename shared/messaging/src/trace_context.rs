//! The W3C trace context of an event. It is stored in the outbox row and in the message's headers, so that all events of an order
//! belong to one trace.

use std::{fmt, str::FromStr};

/// `traceparent`, parsed. Ids are never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

/// The text is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a W3C traceparent")]
pub struct InvalidTraceparent;

impl TraceContext {
    /// A new trace, unsampled.
    pub fn root() -> Self {
        TraceContext { trace_id: rand::random::<u128>().max(1), span_id: rand::random::<u64>().max(1), sampled: false }
    }

    /// A new span in a known trace: 32 hex digits, not all zero.
    pub fn in_trace(trace_id: &str) -> Option<Self> {
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|id| *id != 0)?;
        Some(TraceContext { trace_id, ..TraceContext::root() })
    }

    /// The same trace, one span deeper.
    pub fn child(self) -> Self {
        TraceContext { span_id: rand::random::<u64>().max(1), ..self }
    }

    pub(crate) fn of(trace_id: u128, span_id: u64, sampled: bool) -> Self {
        TraceContext { trace_id, span_id, sampled }
    }

    pub(crate) fn ids(self) -> (u128, u64) {
        (self.trace_id, self.span_id)
    }

    /// Whether spans of this trace are collected.
    pub fn is_sampled(self) -> bool {
        self.sampled
    }

    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

impl FromStr for TraceContext {
    type Err = InvalidTraceparent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceparent> {
        let mut parts = text.split('-');
        let mut field = |length: usize| match parts.next() {
            Some(part) if part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit()) => Ok(part),
            _ => Err(InvalidTraceparent),
        };
        let version = field(2)?;
        let trace_id = u128::from_str_radix(field(32)?, 16).map_err(|_| InvalidTraceparent)?;
        let span_id = u64::from_str_radix(field(16)?, 16).map_err(|_| InvalidTraceparent)?;
        let flags = u8::from_str_radix(field(2)?, 16).map_err(|_| InvalidTraceparent)?;
        if version.eq_ignore_ascii_case("ff") || trace_id == 0 || span_id == 0 {
            return Err(InvalidTraceparent);
        }
        Ok(TraceContext { trace_id, span_id, sampled: flags & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn formatting_and_parsing_round_trip(trace_id in 1u128.., span_id in 1u64.., sampled: bool) {
            let context = TraceContext { trace_id, span_id, sampled };
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,60}") {
            let _ = text.parse::<TraceContext>();
        }
    }

    #[test]
    fn a_child_stays_in_its_trace() {
        let root = TraceContext::root();
        assert_eq!(root.child().trace_id(), root.trace_id());
        assert_ne!(root.child(), root);
    }
}
