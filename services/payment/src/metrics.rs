//! Business metrics of payments: declines by code.

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

/// Common codes, shown with 0 from the start, so that `increase()` counts the first decline.
const USUAL: [&str; 3] = ["card_declined", "expired_card", "insufficient_funds"];

/// Declined payments by code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Declines(Family<CodeLabel, Counter>);

impl Declines {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let this = Declines::default();
        let help = "Declined payments of choreographed and orchestrated orders, by code";
        registry.register("payments_declined", help, this.0.clone());
        for code in USUAL {
            drop(this.0.get_or_create(&CodeLabel { code: code.to_owned() }));
        }
        this
    }

    /// Counts after the refusal is committed.
    pub(crate) fn count(&self, DeclineCode(code): &DeclineCode) -> impl FnOnce(&Metrics) + Send + use<> {
        let (declined, label) = (self.0.clone(), CodeLabel { code: label(code).to_owned() });
        move |_| {
            declined.get_or_create_owned(&label).inc();
        }
    }
}

/// The label value for a code of the card processor; `other` for a text that does not look like a code.
fn label(code: &str) -> &str {
    let valid = code.len() <= 40 && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if valid && !code.is_empty() { code } else { "other" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_codes_become_labels() {
        assert_eq!(label("insufficient_funds"), "insufficient_funds");
        for odd in ["", "Card 4711 declined", "x".repeat(41).as_str()] {
            assert_eq!(label(odd), "other");
        }
    }
}
