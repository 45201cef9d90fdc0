//! What this replica knows of itself at each scrape: its connection to the broker, its breakers, its faults.

#[cfg(feature = "faults")]
use std::collections::BTreeMap;
use std::fmt;

use faults::Faults;
use messaging::Bus;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use resilience::{Breakers, State};

pub(crate) fn register(registry: &mut Registry, breakers: Breakers, bus: Bus, faults: Faults) {
    registry.register_collector(Box::new(BrokerCollector(bus)));
    registry.register_collector(Box::new(BreakerCollector(breakers)));
    #[cfg(feature = "faults")]
    registry.register_collector(Box::new(FaultCollector(faults)));
    #[cfg(not(feature = "faults"))]
    let Faults { .. } = faults;
}

#[derive(Debug)]
struct BrokerCollector(Bus);

impl Collector for BrokerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "1 while this replica is connected to the broker";
        let connected = encoder.encode_descriptor("broker_connected", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.0.is_connected())).encode(connected)
    }
}

struct BreakerCollector(Breakers);

impl fmt::Debug for BreakerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BreakerCollector")
    }
}

impl Collector for BreakerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let snapshots = self.0.snapshots();
        let help = "0 closed, 1 half-open, 2 open, by step";
        let mut family = encoder.encode_descriptor("circuit_breaker_state", help, None, MetricType::Gauge)?;
        for snapshot in &snapshots {
            let state = match snapshot.state {
                State::Closed => 0_i64,
                State::HalfOpen => 1,
                State::Open { .. } => 2,
            };
            ConstGauge::new(state).encode(family.encode_family(&[("step", snapshot.step)])?)?;
        }
        let help = "Share of failures in the breaker's window, by step";
        let mut family = encoder.encode_descriptor("circuit_breaker_failure_ratio", help, None, MetricType::Gauge)?;
        for snapshot in &snapshots {
            ConstGauge::new(snapshot.failure_rate).encode(family.encode_family(&[("step", snapshot.step)])?)?;
        }
        let help = "Calls of steps by what became of them";
        let mut family = encoder.encode_descriptor("circuit_breaker_calls", help, None, MetricType::Counter)?;
        for snapshot in &snapshots {
            let counts = snapshot.counts;
            for (outcome, count) in [
                ("succeeded", counts.succeeded),
                ("failed", counts.failed),
                ("ignored", counts.ignored),
                ("rejected", counts.rejected),
                ("late", counts.late),
            ] {
                let labels = [("step", snapshot.step), ("outcome", outcome)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Times a breaker opened, by step";
        let mut family = encoder.encode_descriptor("circuit_breaker_opened", help, None, MetricType::Counter)?;
        for snapshot in &snapshots {
            ConstCounter::new(snapshot.counts.opened).encode(family.encode_family(&[("step", snapshot.step)])?)?;
        }
        Ok(())
    }
}

#[cfg(feature = "faults")]
#[derive(Debug)]
struct FaultCollector(Faults);

#[cfg(feature = "faults")]
impl Collector for FaultCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "Faults that are armed in this process";
        let armed = encoder.encode_descriptor("faults_armed", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(self.0.armed().len()).unwrap_or(i64::MAX)).encode(armed)?;
        let help = "Faults injected, by point and kind";
        let mut family = encoder.encode_descriptor("faults_injected", help, None, MetricType::Counter)?;
        // A fault that is armed is shown with 0 until it acts, so that its first hit is seen as an increase.
        let armed = self.0.armed().into_iter().map(|fault| ((fault.spec.point, fault.spec.kind), 0));
        let shown: BTreeMap<_, _> = armed.chain(self.0.hits()).collect();
        for ((point, kind), hits) in shown {
            let labels = [("point", point.as_str()), ("kind", kind.as_str())];
            ConstCounter::new(hits).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
