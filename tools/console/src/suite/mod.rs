//! A running suite, seen through its REST APIs as any client sees it. This module repeats the contract in DTOs of its own, so
//! that a breaking change of a service is detected. Only the list of participants comes from the manifest.

mod addresses;
mod admin;
mod dead_letter;
mod fault;
mod gateway;
mod http;
mod inventory;
mod order;
mod payment;
mod wait;

use std::time::Duration;

pub use addresses::{Addresses, ParticipantUrls};
pub use admin::{Breaker, BreakerChange, Breakers, Consumer, OutboxEntry, Relay};
use anyhow::ensure;
pub use contracts::{INVENTORY, ORDER, PAYMENT, SERVICES};
pub use dead_letter::{DeadLetter, DeadLetterAction, DryRun, Rehearsal};
pub use fault::{ArmedFault, FaultSpec, Scope};
pub use gateway::{Charge, GatewayFaults, GatewayTotal};
pub(crate) use gateway::{Reconciliation, Statement, reconcile};
pub(crate) use http::Http;
pub use http::{Exchange, Listener};
pub use inventory::{NewProduct, Product, Reservation, ReservationLine};
pub use order::{Explanation, NewOrder, Obstacle, Order, OrderLine, ProductView, Remedy, Saga, SagaStep};
pub use payment::Payment;
use reqwest::{Method, RequestBuilder, StatusCode, header};
pub use saga::Service;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
pub use wait::until;

/// An amount in minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    pub amount: i64,
    pub currency: String,
}

impl Money {
    pub fn usd(amount: i64) -> Self {
        Money { amount, currency: "USD".to_owned() }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    #[error("{request}: no answer")]
    Unreachable { request: String, source: reqwest::Error },
    #[error("{request}: {status} {detail}")]
    Refused { request: String, status: StatusCode, detail: String },
    #[error("{request}: the answer breaks the contract")]
    Undecodable { request: String, source: serde_json::Error },
}

impl SuiteError {
    /// Whether the same request may succeed later: there was no answer, the key is in flight, or the service is overloaded or
    /// failing.
    pub fn is_temporary(&self) -> bool {
        match self {
            SuiteError::Unreachable { .. } => true,
            SuiteError::Refused { status, .. } => {
                status.is_server_error() || matches!(*status, StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS)
            }
            SuiteError::Undecodable { .. } => false,
        }
    }

    /// The order that was placed and cancelled, where that is what is refused: `Order ID was cancelled: ...`.
    fn cancelled_order(&self) -> Option<Uuid> {
        let SuiteError::Refused { status: StatusCode::CONFLICT, detail, .. } = self else { return None };
        detail.strip_prefix("Order ")?.split(' ').next()?.parse().ok()
    }

    pub fn status(&self) -> Option<StatusCode> {
        match self {
            SuiteError::Refused { status, .. } => Some(*status),
            SuiteError::Unreachable { .. } | SuiteError::Undecodable { .. } => None,
        }
    }
}

/// A client of the participants and of the card processor.
#[derive(Debug, Clone)]
pub struct Suite {
    http: Http,
    addresses: Addresses,
}

impl Suite {
    pub fn new(addresses: Addresses) -> Result<Self, reqwest::Error> {
        Ok(Suite { http: Http::new()?, addresses })
    }

    /// The same suite; each request opens a connection.
    pub fn without_keep_alive(self) -> Result<Self, reqwest::Error> {
        Ok(Suite { http: self.http.without_keep_alive()?, ..self })
    }

    /// The same suite; the listener is called for every exchange with it.
    pub fn with_listener(self, listener: Listener) -> Self {
        Suite { http: self.http.with_listener(listener), ..self }
    }

    /// The same suite, with another replica's URL for one service.
    pub fn at(&self, service: Service, url: &str) -> Self {
        Suite { http: self.http.clone(), addresses: self.addresses.clone().with(service, url) }
    }

    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    fn api(&self, method: Method, service: Service, path: &str) -> RequestBuilder {
        self.http.request(method, &format!("{}/api/{path}", self.addresses.of(service)))
    }

    fn get(&self, service: Service, path: &str) -> RequestBuilder {
        self.api(Method::GET, service, path)
    }

    fn admin(&self, method: Method, service: Service, path: &str) -> RequestBuilder {
        let request = self.api(method, service, &format!("admin/{path}"));
        request.bearer_auth(&self.addresses.admin_token).header("x-actor", "demo")
    }

    async fn done(&self, request: RequestBuilder) -> Result<(), SuiteError> {
        self.http.text(request).await.map(drop)
    }

    /// # Errors
    /// Why the server at this URL is not ready.
    pub async fn ready_at(&self, url: &str) -> Result<(), SuiteError> {
        self.done(self.http.request(Method::GET, &format!("{url}/health/ready"))).await
    }

    /// Waits until all servers are ready. They need some seconds after a start, or after a server that they depend on was down.
    ///
    /// # Errors
    /// Why each of the others is not.
    pub async fn become_ready(&self) -> anyhow::Result<()> {
        const READY_TIMEOUT: Duration = Duration::from_secs(10);
        let end = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let reasons = self.not_ready().await;
            if reasons.is_empty() {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < end, "\n  {}", reasons.join("\n  "));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let participants = SERVICES.map(|service| (service.0, self.addresses.of(service)));
        for (name, url) in participants.into_iter().chain([("gateway", self.addresses.gateway_url.as_str())]) {
            if let Err(error) = self.ready_at(url).await {
                reasons.push(format!("{name} is not ready: {error}"));
            }
        }
        reasons
    }
}

fn with_json<T: Serialize>(request: RequestBuilder, body: &T) -> RequestBuilder {
    request.header(header::ACCEPT, "application/json").json(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_errors_are_retried() {
        let refused = |status| SuiteError::Refused { request: String::new(), status, detail: String::new() };
        assert!(refused(StatusCode::SERVICE_UNAVAILABLE).is_temporary());
        assert!(refused(StatusCode::CONFLICT).is_temporary());
        assert!(!refused(StatusCode::UNPROCESSABLE_ENTITY).is_temporary());
    }
}
