//! Business metrics: orders by outcome, and revenue, of choreographed and orchestrated orders alike.

use contracts::{
    Currency, Money,
    order_fulfillment::{CONFIRM_ORDER, CREATE_ORDER, CancelReason},
};
use messaging::metrics::{Metrics, StepStatusLabel};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
    },
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CurrencyLabel {
    currency: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The ends of orders: the only metrics here that steps count themselves, after their commit. A step does not say why an
/// orchestrated order was cancelled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    revenue: Family<CurrencyLabel, Counter>,
    cancelled: Family<ReasonLabel, Counter>,
}

impl Ends {
    /// Counts the value of a confirmed order.
    pub(crate) fn confirmed(&self, total: Money) -> impl FnOnce(&Metrics) + Send + use<> {
        let revenue = self.revenue_in(total.currency);
        move |_| {
            revenue.inc_by(total.amount.unsigned_abs());
        }
    }

    /// Counts a cancelled order.
    pub(crate) fn cancelled(&self, reason: CancelReason) -> impl FnOnce(&Metrics) + Send + use<> {
        let cancelled = self.cancelled_for(reason);
        move |_| {
            cancelled.inc();
        }
    }

    fn revenue_in(&self, currency: Currency) -> Counter {
        self.revenue.get_or_create_owned(&CurrencyLabel { currency: currency.to_string() })
    }

    fn cancelled_for(&self, reason: CancelReason) -> Counter {
        let reason = match reason {
            CancelReason::OutOfStock => "out_of_stock",
            CancelReason::PaymentRefused => "payment_refused",
            CancelReason::TimedOut => "timed_out",
            CancelReason::CustomerRequest => "customer_request",
        };
        self.cancelled.get_or_create_owned(&ReasonLabel { reason })
    }
}

/// Registers the counters.
pub(crate) fn register(metrics: &bootstrap::Metrics, steps: Metrics) -> Ends {
    use CancelReason::{CustomerRequest, OutOfStock, PaymentRefused, TimedOut};
    let ends = Ends::default();
    // They start at 0, so that `increase()` counts the first order.
    drop(ends.revenue_in(Currency::USD));
    for reason in [OutOfStock, PaymentRefused, TimedOut, CustomerRequest] {
        drop(ends.cancelled_for(reason));
    }
    metrics.register(|registry| {
        let help = "Value of the confirmed orders, choreographed and orchestrated; later refunds are not subtracted";
        registry.register("revenue_minor_units", help, ends.revenue.clone());
        let help = "Orders cancelled, choreographed and orchestrated, by reason";
        registry.register("orders_cancelled", help, ends.cancelled.clone());
    });
    metrics.on_scrape(move |scrape| {
        // The sagas of both kinds have these steps, under the same names.
        let done = |step| {
            let label = StepStatusLabel { step, status: "COMPLETED" };
            ConstCounter::new(steps.saga_steps.get_or_create_owned(&label).get())
        };
        let help = "Orders accepted, choreographed and orchestrated";
        scrape.one("orders_accepted", help, done(CREATE_ORDER.name))?;
        let help = "Orders confirmed, choreographed and orchestrated; a customer may still cancel one";
        scrape.one("orders_confirmed", help, done(CONFIRM_ORDER.name))
    });
    ends
}

/// What was deleted after its retention.
#[derive(Debug, Clone, Default)]
pub(crate) struct Purged {
    pub(crate) keys: Counter,
    pub(crate) sagas: Counter,
}

impl Purged {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let purged = Purged::default();
        let help = "Idempotency keys that were deleted after their retention; each can then place another order";
        registry.register("idempotency_keys_forgotten", help, purged.keys.clone());
        registry.register("saga_purged", "Ended sagas that were deleted after their retention", purged.sagas.clone());
        purged
    }
}
