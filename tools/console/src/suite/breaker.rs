//! The circuit breakers of a service, as its administration shows them.

use reqwest::Method;
use serde::Deserialize;
use time::OffsetDateTime;

use super::{Service, Suite, SuiteError};

/// The breakers of all replicas, those of the answering one first, and their changes.
#[derive(Debug, Clone, Deserialize)]
pub struct Breakers {
    pub items: Vec<Breaker>,
    /// Newest first.
    #[serde(default)]
    pub changes: Vec<BreakerChange>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Breaker {
    pub replica: String,
    pub step: String,
    /// `closed`, `open` or `half-open`
    pub state: String,
    pub why: Option<String>,
    /// While open: until it probes.
    pub retry_in_seconds: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct BreakerChange {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub step: String,
    pub from: String,
    pub to: String,
    pub why: Option<String>,
}

impl Breaker {
    pub fn is_closed(&self) -> bool {
        self.state == "closed"
    }
}

impl Suite {
    /// The breakers of a service; `None` when it has none.
    pub async fn breakers(&self, service: Service) -> Result<Option<Breakers>, SuiteError> {
        self.http.found(self.admin(Method::GET, service, "breakers")).await
    }

    /// Closes a step's breaker in every replica.
    pub async fn reset_breaker(&self, service: Service, step: &str) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, service, &format!("breakers/{step}/reset"))).await
    }
}
