//! Business metrics: orders by outcome, and revenue. Derived from the committed steps.

use contracts::{
    Currency, Money,
    order_fulfillment::{
        CANCEL_ORDER_ON_REQUEST, CANCEL_TIMED_OUT_ORDER, CANCEL_UNFILLABLE_ORDER, CANCEL_UNPAID_ORDER, CONFIRM_ORDER,
        CREATE_ORDER, DRIVE_COMPENSATION, SAGA,
    },
};
use messaging::metrics::{Metrics, SagaStep, StepStatusLabel};
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

/// The value of the confirmed orders: the only metric here that a step counts itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Revenue(Family<CurrencyLabel, Counter>);

impl Revenue {
    /// Counts after the confirmation is committed.
    pub(crate) fn count(&self, total: Money) -> impl FnOnce(&Metrics) + Send + use<> {
        let revenue = self.clone();
        move |_| {
            revenue.of(total.currency).inc_by(total.amount.unsigned_abs());
        }
    }

    fn of(&self, currency: Currency) -> Counter {
        self.0.get_or_create_owned(&CurrencyLabel { currency: currency.to_string() })
    }
}

/// Registers the counters.
pub(crate) fn register(metrics: &bootstrap::Metrics, steps: Metrics) -> Revenue {
    let revenue = Revenue::default();
    // Starts at 0, so that `increase()` counts the first order.
    drop(revenue.of(Currency::USD));
    let help = "Value of the confirmed orders; later refunds are not subtracted";
    metrics.register(|registry| registry.register("revenue_minor_units", help, revenue.0.clone()));
    metrics.on_scrape(move |scrape| {
        let done = |step| {
            let label = StepStatusLabel { step, status: "COMPLETED" };
            ConstCounter::new(steps.saga_steps.get_or_create_owned(&label).get())
        };
        scrape.one("orders_accepted", "Orders accepted", done(CREATE_ORDER.name))?;
        scrape.one(
            "orders_confirmed",
            "Orders confirmed; a customer may still cancel one",
            done(CONFIRM_ORDER.name),
        )?;
        // The step that cancels an order is the one that starts the compensation of its saga.
        let undone = |step: &'static str| {
            let label = SagaStep { saga_type: SAGA.saga_type, step };
            steps.saga_compensations_started.get_or_create_owned(&label).get()
        };
        let cancelled = CANCELLED.map(|(reason, by)| {
            let orders: u64 = by.iter().map(|step| undone(step)).sum();
            ([("reason", reason)], ConstCounter::new(orders))
        });
        scrape.family("orders_cancelled", "Orders cancelled, by reason", cancelled)
    });
    revenue
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

/// The reasons of cancellations, and the steps that cancel.
const CANCELLED: [(&str, &[&str]); 4] = [
    ("out_of_stock", &[CANCEL_UNFILLABLE_ORDER.step.name]),
    ("payment_refused", &[CANCEL_UNPAID_ORDER.step.name]),
    // The second one cancels orders whose timeout event was not handled in time.
    ("timed_out", &[CANCEL_TIMED_OUT_ORDER.step.name, DRIVE_COMPENSATION.name]),
    ("customer_request", &[CANCEL_ORDER_ON_REQUEST.name]),
];
