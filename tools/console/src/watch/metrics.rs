//! The metrics of the audit. They have no value before the first audit: a violation count of 0 means that the invariant was
//! checked.

use std::{sync::atomic::AtomicU64, time::Duration};

use bootstrap::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::{alerts::Status, board};
use crate::audit::Verdict;

/// A gauge that is not exported before it is set.
type LateGauge<L = NoLabels> = Family<L, Gauge<f64, AtomicU64>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InvariantLabels {
    invariant: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertLabels {
    status: &'static str,
}

#[derive(Debug, Clone, Default)]
pub(super) struct AuditMetrics {
    violations: Family<InvariantLabels, Gauge>,
    checked: LateGauge<InvariantLabels>,
    runs: Counter,
    failures: Counter,
    duration: LateGauge,
    last_success: LateGauge,
    alerts: Family<AlertLabels, Counter>,
}

impl AuditMetrics {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let this = Self::default();
        metrics.register(|registry| {
            registry.register(
                "invariant_violations",
                "Violations of this invariant in the latest audit, without what was in flight",
                this.violations.clone(),
            );
            registry.register(
                "invariant_checked_timestamp_seconds",
                "When this invariant was last checked; every audit checks all of them",
                this.checked.clone(),
            );
            registry.register("audit_runs", "Audits completed", this.runs.clone());
            registry.register(
                "audit_failures",
                "Audits that failed because a store could not be read",
                this.failures.clone(),
            );
            registry.register("audit_duration_seconds", "Duration of the latest audit", this.duration.clone());
            registry.register(
                "audit_last_success_timestamp_seconds",
                "When an audit was last completed, in seconds since the Unix epoch",
                this.last_success.clone(),
            );
            registry.register("alerts_received", "Alerts received from Alertmanager, by status", this.alerts.clone());
        });
        for status in [Status::Firing, Status::Resolved] {
            this.alerts.get_or_create_owned(&AlertLabels { status: status.as_str() });
        }
        this
    }

    pub(super) fn audited(&self, verdicts: &[Verdict], took: Duration) {
        let now = board::now().unix_timestamp_nanos() as f64 / 1e9;
        for verdict in verdicts {
            let labels = InvariantLabels { invariant: verdict.name };
            let violations = i64::try_from(verdict.violations).unwrap_or(i64::MAX);
            self.violations.get_or_create_owned(&labels).set(violations);
            self.checked.get_or_create_owned(&labels).set(now);
        }
        self.runs.inc();
        self.duration.get_or_create_owned(&NoLabels {}).set(took.as_secs_f64());
        self.last_success.get_or_create_owned(&NoLabels {}).set(now);
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn received(&self, status: Status) {
        self.alerts.get_or_create_owned(&AlertLabels { status: status.as_str() }).inc();
    }
}
