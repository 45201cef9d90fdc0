//! The latest verdict on every invariant.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::audit::{Report, Totals, Verdict};

/// Clones share the verdicts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
pub(super) struct Known {
    /// By name, from the latest completed audit, which checks all of them.
    pub(super) verdicts: BTreeMap<&'static str, Verdict>,
    pub(super) audited_at: Option<OffsetDateTime>,
    pub(super) took: Duration,
    /// What the latest completed audit accounted for.
    pub(super) totals: Option<Totals>,
    /// Why the latest audit failed, if it did.
    pub(super) failure: Option<String>,
}

impl Board {
    pub(super) fn audited(&self, report: Report, took: Duration) {
        let verdicts = report.invariants.into_iter().map(|verdict| (verdict.name, verdict)).collect();
        *self.read() = Known { verdicts, audited_at: Some(now()), took, totals: report.totals, failure: None };
    }

    pub(super) fn failed(&self, reason: String) {
        self.read().failure = Some(reason);
    }

    /// The latest audit, for a program.
    pub(crate) fn as_json(&self) -> Value {
        let known = self.read();
        let violated: Vec<_> = known.verdicts.values().filter(|verdict| verdict.violations > 0).collect();
        json!({
            "audited_at": known.audited_at.and_then(|at| at.format(&Rfc3339).ok()),
            "failure": known.failure,
            "invariants": known.verdicts.len(),
            "violated": violated,
            "totals": known.totals.as_ref().map(ToString::to_string),
        })
    }

    pub(super) fn read(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "it is only displayed")]
pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
