//! Counts and times every call to the gateway.

use std::{sync::Arc, time::Instant};

use bootstrap::metrics::{SecondsFamily, TraceLabel, seconds_histogram};
use messaging::Context;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::{Registry, Unit},
};

use super::{GatewayError, Intent, PaymentGateway};
use crate::domain::{Answer, Ask};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AskLabel {
    ask: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabel {
    ask: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct GatewayMetrics {
    calls: Family<CallLabel, Counter>,
    duration: SecondsFamily<AskLabel>,
}

impl GatewayMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let m = GatewayMetrics {
            calls: Family::default(),
            duration: SecondsFamily::new_with_constructor(seconds_histogram),
        };
        registry.register("gateway_calls", "Calls to the card processor, by outcome", m.calls.clone());
        let help = "Duration of one call to the card processor";
        registry.register_with_unit("gateway_call_duration", help, Unit::Seconds, m.duration.clone());
        for ask in ["charge", "refund", "void"] {
            for outcome in ["answered", "unavailable", "unknown", "rejected"] {
                drop(m.calls.get_or_create(&CallLabel { ask, outcome }));
            }
        }
        m
    }
}

/// A gateway whose calls are measured.
#[derive(Clone)]
pub(crate) struct MeasuredGateway {
    pub(crate) inner: Arc<dyn PaymentGateway>,
    pub(crate) metrics: GatewayMetrics,
}

impl MeasuredGateway {
    /// [`PaymentGateway::ask`]
    pub(crate) async fn ask(&self, ask: &Ask, intent: &Intent, context: &Context) -> Result<Answer, GatewayError> {
        let begun = Instant::now();
        let answer = self.inner.ask(ask, intent, context).await;
        let (ask, outcome) = (name(ask), outcome(&answer));
        let exemplar = context.trace.is_sampled().then(|| TraceLabel { trace_id: context.trace.trace_id() });
        self.metrics.calls.get_or_create_owned(&CallLabel { ask, outcome }).inc();
        let duration = self.metrics.duration.get_or_create_owned(&AskLabel { ask });
        duration.observe(begun.elapsed().as_secs_f64(), exemplar, None);
        answer
    }
}

fn name(ask: &Ask) -> &'static str {
    match ask {
        Ask::Charge => "charge",
        Ask::Refund(_) => "refund",
        Ask::Void => "void",
    }
}

fn outcome(answer: &Result<Answer, GatewayError>) -> &'static str {
    match answer {
        Ok(_) => "answered",
        Err(GatewayError::Unavailable(_)) => "unavailable",
        Err(GatewayError::Unknown(_)) => "unknown",
        Err(GatewayError::Rejected { .. }) => "rejected",
    }
}
