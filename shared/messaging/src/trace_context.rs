//! The W3C trace context of an event. It is stored in the outbox row and in the message's headers, so that all events of an order
//! belong to one trace.

use std::{fmt, str::FromStr};

use opentelemetry::{
    SpanId, TraceFlags, TraceId,
    trace::{SpanContext, TraceState},
};

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
            Some(part) if part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit()) => {
                u128::from_str_radix(part, 16).map_err(|_| InvalidTraceparent)
            }
            _ => Err(InvalidTraceparent),
        };
        let (version, trace_id, span_id, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let span_id = u64::try_from(span_id).map_err(|_| InvalidTraceparent)?;
        if version == 0xff || trace_id == 0 || span_id == 0 {
            return Err(InvalidTraceparent);
        }
        Ok(TraceContext { trace_id, span_id, sampled: flags & 1 == 1 })
    }
}

impl From<TraceContext> for SpanContext {
    fn from(TraceContext { trace_id, span_id, sampled }: TraceContext) -> Self {
        let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, true, TraceState::default())
    }
}

impl From<SpanContext> for TraceContext {
    fn from(context: SpanContext) -> Self {
        let trace_id = u128::from_be_bytes(context.trace_id().to_bytes());
        let span_id = u64::from_be_bytes(context.span_id().to_bytes());
        TraceContext { trace_id, span_id, sampled: context.is_sampled() }
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
