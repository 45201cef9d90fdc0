//! Fault injection through the services' administration.

use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Service, Suite, SuiteError, http::Page, with_json};

/// A fault to be armed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FaultSpec {
    pub point: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// In addition to the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u8>,
    /// It hits only so many passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    pub expires_in_seconds: u32,
}

/// Which orders a fault applies to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Scope {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A fault that is armed in a service.
#[derive(Debug, Clone, Deserialize)]
pub struct ArmedFault {
    pub id: u64,
    pub point: String,
    pub kind: String,
    /// In all replicas together.
    #[serde(default)]
    pub hits: u64,
    /// The replicas that hold it.
    #[serde(default)]
    pub replicas: Vec<String>,
    /// The replicas that have not confirmed that they hold it.
    #[serde(default)]
    pub missing: Vec<String>,
}

impl FaultSpec {
    /// A fault that hits every pass of the point.
    pub fn new(point: &str, kind: &str) -> Self {
        FaultSpec { point: point.to_owned(), kind: kind.to_owned(), ..FaultSpec::default() }
    }
}

impl Suite {
    pub async fn arm(&self, service: Service, fault: &impl Serialize) -> Result<ArmedFault, SuiteError> {
        self.http.json(with_json(self.admin(Method::POST, service, "faults"), fault)).await
    }

    /// The faults armed in a service's replicas; `None` when faults are not enabled there.
    pub async fn armed_faults(&self, service: Service) -> Result<Option<Vec<ArmedFault>>, SuiteError> {
        let faults = self.http.found::<Page<ArmedFault>>(self.admin(Method::GET, service, "faults")).await?;
        Ok(faults.map(|faults| faults.items))
    }

    /// A fault that is still armed.
    pub async fn armed_fault(&self, service: Service, id: u64) -> Result<Option<ArmedFault>, SuiteError> {
        let armed = self.armed_faults(service).await?.unwrap_or_default();
        Ok(armed.into_iter().find(|fault| fault.id == id))
    }

    /// Disarms all faults of a service. An unreachable service counts as disarmed: its faults expire.
    pub async fn disarm(&self, service: Service) -> Result<(), SuiteError> {
        match self.done(self.admin(Method::DELETE, service, "faults")).await {
            Ok(_) | Err(SuiteError::Unreachable { .. }) => Ok(()),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_limits_of_a_fault_are_not_sent() {
        let scope = Some(Scope { sku: Some("A".to_owned()), ..Scope::default() });
        let fault = FaultSpec { first: Some(2), scope, expires_in_seconds: 60, ..FaultSpec::new("in_step", "error") };
        let json = serde_json::to_value(fault).expect("JSON");
        let expected = serde_json::json!({
            "point": "in_step", "kind": "error", "first": 2, "scope": {"sku": "A"}, "expires_in_seconds": 60
        });
        assert_eq!(json, expected);
    }
}
