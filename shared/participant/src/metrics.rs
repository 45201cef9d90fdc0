//! Metrics of this replica that are read at each scrape: its connection to the broker, its breakers, its faults.

#[cfg(feature = "faults")]
use std::collections::BTreeMap;

use bootstrap::Metrics;
use faults::Faults;
use messaging::Bus;
use prometheus_client::metrics::{counter::ConstCounter, gauge::ConstGauge};
use resilience::{Breakers, State};

pub(crate) fn register(metrics: &Metrics, breakers: Breakers, bus: Bus, faults: Faults) {
    metrics.on_scrape(move |scrape| {
        let connected = ConstGauge::new(i64::from(bus.is_connected()));
        scrape.one("broker_connected", "1 while this replica is connected to the broker", connected)
    });
    register_breakers(metrics, breakers);
    #[cfg(feature = "faults")]
    register_faults(metrics, faults);
    #[cfg(not(feature = "faults"))]
    let Faults { .. } = faults;
}

fn register_breakers(metrics: &Metrics, breakers: Breakers) {
    metrics.on_scrape(move |scrape| {
        let snapshots = breakers.snapshots();
        let states = snapshots.iter().map(|snapshot| {
            let state = match snapshot.state {
                State::Closed => 0_i64,
                State::HalfOpen => 1,
                State::Open { .. } => 2,
            };
            ([("step", snapshot.step)], ConstGauge::new(state))
        });
        scrape.family("circuit_breaker_state", "0 closed, 1 half-open, 2 open, by step", states)?;
        let ratios = snapshots.iter().map(|s| ([("step", s.step)], ConstGauge::new(s.failure_rate)));
        let help = "Share of failures in the breaker's window, by step";
        scrape.family("circuit_breaker_failure_ratio", help, ratios)?;
        let calls = snapshots.iter().flat_map(|snapshot| {
            let counts = snapshot.counts;
            let outcomes = [
                ("succeeded", counts.succeeded),
                ("failed", counts.failed),
                ("ignored", counts.ignored),
                ("rejected", counts.rejected),
                ("late", counts.late),
            ];
            outcomes.map(|(outcome, n)| ([("step", snapshot.step), ("outcome", outcome)], ConstCounter::new(n)))
        });
        scrape.family("circuit_breaker_calls", "Calls of steps, by outcome", calls)?;
        let opened = snapshots.iter().map(|s| ([("step", s.step)], ConstCounter::new(s.counts.opened)));
        scrape.family("circuit_breaker_opened", "Times a breaker opened, by step", opened)
    });
}

#[cfg(feature = "faults")]
fn register_faults(metrics: &Metrics, faults: Faults) {
    metrics.on_scrape(move |scrape| {
        let armed = faults.armed();
        let count = ConstGauge::new(i64::try_from(armed.len()).unwrap_or(i64::MAX));
        scrape.one("faults_armed", "Faults that are armed in this process", count)?;
        // An armed fault is shown with 0 until its first hit, so that `increase()` counts that hit.
        let armed = armed.into_iter().map(|fault| ((fault.spec.point, fault.spec.kind), 0));
        let shown: BTreeMap<_, _> = armed.chain(faults.hits()).collect();
        let injected = shown.iter().map(|((point, kind), hits)| {
            ([("point", point.as_str()), ("kind", kind.as_str())], ConstCounter::new(*hits))
        });
        scrape.family("faults_injected", "Faults injected, by point and kind", injected)
    });
}
