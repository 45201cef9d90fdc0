//! What the business wants to see of payments: why cards are declined.

use messaging::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::domain::DeclineCode;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: String,
}

/// What every card processor says: shown with 0 from the beginning, so that the first one is seen as an increase.
const USUAL: [&str; 3] = ["card_declined", "expired_card", "insufficient_funds"];

/// Declined payments by code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Declines(Family<CodeLabel, Counter>);

impl Declines {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let this = Declines::default();
        registry.register("payments_declined", "Payments that came to nothing, by the reason's code", this.0.clone());
        for code in USUAL {
            drop(this.0.get_or_create(&CodeLabel { code: code.to_owned() }));
        }
        this
    }

    /// To be counted once the refusal is committed.
    pub(crate) fn count(&self, DeclineCode(code): &DeclineCode) -> impl FnOnce(&Metrics) + Send + use<> {
        let (declined, label) = (self.0.clone(), CodeLabel { code: label(code).to_owned() });
        move |_| {
            declined.get_or_create_owned(&label).inc();
        }
    }
}

/// Codes are the card processor's; what looks like no code does not become a label.
fn label(code: &str) -> &str {
    let sound = code.len() <= 40 && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if sound && !code.is_empty() { code } else { "other" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_looks_like_a_code_becomes_a_label() {
        assert_eq!(label("insufficient_funds"), "insufficient_funds");
        for odd in ["", "Card 4711 declined", "x".repeat(41).as_str()] {
            assert_eq!(label(odd), "other");
        }
    }
}
