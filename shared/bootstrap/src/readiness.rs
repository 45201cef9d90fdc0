//! The readiness of a service. Each dependency registers once and updates its own flag; the service is ready only when all of
//! them are ok.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use utoipa::ToSchema;

/// The registry of dependencies; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
}

/// One dependency's flag, updated by the task that watches it.
#[derive(Clone, Debug)]
pub struct ReadyFlag {
    name: String,
    readiness: Readiness,
}

/// The state of one dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Check {
    /// Whether the dependency can be used.
    pub ok: bool,
    /// Why not, when it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Readiness {
    /// Adds a dependency, which counts as failing until its flag is set to ok. Registering a name again replaces its
    /// state.
    pub fn register(&self, name: impl Into<String>) -> ReadyFlag {
        let name = name.into();
        self.set(&name, Check::failing("not yet available"));
        ReadyFlag { name, readiness: self.clone() }
    }

    /// Every dependency with its state, ordered by name.
    pub fn snapshot(&self) -> BTreeMap<String, Check> {
        self.lock().clone()
    }

    /// Whether every registered dependency is ok.
    pub fn is_ready(&self) -> bool {
        self.lock().values().all(|check| check.ok)
    }

    /// Whether requests can be answered: the service has started, and its database is ok, if it has one. What else it does with its
    /// events may fail meanwhile.
    pub fn is_serving(&self) -> bool {
        let checks = self.lock();
        ["startup", "postgres"].iter().all(|needed| checks.get(*needed).is_none_or(|check| check.ok))
    }

    fn set(&self, name: &str, check: Check) -> Option<Check> {
        self.lock().insert(name.to_owned(), check)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Check>> {
        // No code panics while it holds this lock, and a snapshot of a map is valid anyway.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadyFlag {
    /// The dependency can be used.
    pub fn ok(&self) {
        let before = self.readiness.set(&self.name, Check { ok: true, reason: None });
        if before.is_some_and(|check| !check.ok) {
            tracing::info!(dependency = self.name, "dependency is ready");
        }
    }

    /// The dependency cannot be used, with the reason shown to operators. Logged when the state changes.
    pub fn failing(&self, reason: impl Into<String>) {
        let check = Check::failing(reason);
        let reason = check.reason.clone();
        if self.readiness.set(&self.name, check).is_some_and(|before| before.ok) {
            tracing::warn!(dependency = self.name, reason, "dependency is failing");
        }
    }
}

impl Check {
    fn failing(reason: impl Into<String>) -> Self {
        Self { ok: false, reason: Some(reason.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_ready_only_when_every_dependency_is_ok() {
        let readiness = Readiness::default();
        let postgres = readiness.register("postgres");
        let nats = readiness.register("nats");
        postgres.ok();
        assert!(!readiness.is_ready());
        nats.ok();
        assert!(readiness.is_ready());
        nats.failing("connection refused");
        assert!(!readiness.is_ready());
        let reason = readiness.snapshot().remove("nats").and_then(|check| check.reason);
        assert_eq!(reason.as_deref(), Some("connection refused"));
    }
}
