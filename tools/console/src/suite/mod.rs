//! A running suite, seen through its REST APIs as any client sees it. The contract is repeated here
//! in DTOs of our own, so a service that breaks it is noticed.

mod admin;
mod annotation;
mod breaker;
mod dead_letter;
mod fault;
mod gateway;
mod http;
mod inventory;
mod order;
mod payment;
mod wait;

use std::time::Duration;

pub use admin::{Consumer, OutboxEntry, Relay};
pub use breaker::{Breaker, BreakerChange, Breakers};
pub use dead_letter::{DeadLetter, DeadLetterAction, DryRun, Rehearsal};
pub use fault::{ArmedFault, FaultSpec, Scope};
pub use gateway::{Charge, GatewayFaults, GatewayTotal};
pub(crate) use gateway::{Reconciliation, Statement, reconcile};
pub(crate) use http::Http;
pub use http::{Exchange, Listener};
pub use inventory::{NewProduct, Product, Reservation, ReservationLine};
pub use order::{Explanation, Finding, NewOrder, Order, OrderLine, ProductView, Remedy, Saga, SagaStep};
pub use payment::Payment;
use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde::{Deserialize, Serialize};
pub use wait::until;

/// Where the suite is.
#[derive(Debug, Clone, clap::Args)]
pub struct Addresses {
    #[arg(long, env = "ORDER_URL", default_value = "http://127.0.0.1:8081")]
    pub order_url: String,
    #[arg(long, env = "INVENTORY_URL", default_value = "http://127.0.0.1:8082")]
    pub inventory_url: String,
    #[arg(long, env = "PAYMENT_URL", default_value = "http://127.0.0.1:8083")]
    pub payment_url: String,
    #[arg(long, env = "GATEWAY_URL", default_value = "http://127.0.0.1:8084")]
    pub gateway_url: String,
    /// Opens the administration routes
    #[arg(long, env = "ADMIN_TOKEN", default_value = "dev-admin-token", hide_env_values = true)]
    pub admin_token: String,
}

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

/// Why a request brought no answer of the kind it should.
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
    /// Whether the same request may be answered otherwise later: nobody answered, the key is in
    /// flight, or the service is overloaded or not well.
    pub fn is_temporary(&self) -> bool {
        match self {
            SuiteError::Unreachable { .. } => true,
            SuiteError::Refused { status, .. } => {
                status.is_server_error() || matches!(*status, StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS)
            }
            SuiteError::Undecodable { .. } => false,
        }
    }

    pub fn status(&self) -> Option<StatusCode> {
        match self {
            SuiteError::Refused { status, .. } => Some(*status),
            SuiteError::Unreachable { .. } | SuiteError::Undecodable { .. } => None,
        }
    }
}

/// A service that takes part in the saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Order,
    Inventory,
    Payment,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Order, Service::Inventory, Service::Payment];

    /// As its process is called, too.
    pub const fn name(self) -> &'static str {
        match self {
            Service::Order => "order",
            Service::Inventory => "inventory",
            Service::Payment => "payment",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == name)
    }
}

impl Addresses {
    pub fn of(&self, service: Service) -> &str {
        match service {
            Service::Order => &self.order_url,
            Service::Inventory => &self.inventory_url,
            Service::Payment => &self.payment_url,
        }
    }
}

/// A client of all four servers.
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

    /// The same suite; the listener hears of every exchange with it.
    pub fn heard_by(self, listener: Listener) -> Self {
        Suite { http: self.http.heard_by(listener), ..self }
    }

    /// The same suite, where one service is reached at another replica.
    pub fn at(&self, service: Service, url: &str) -> Self {
        let mut suite = self.clone();
        match service {
            Service::Order => suite.addresses.order_url = url.to_owned(),
            Service::Inventory => suite.addresses.inventory_url = url.to_owned(),
            Service::Payment => suite.addresses.payment_url = url.to_owned(),
        }
        suite
    }

    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// A request to a service.
    fn api(&self, method: Method, service: Service, path: &str) -> RequestBuilder {
        self.http.request(method, &format!("{}/api/{path}", self.addresses.of(service)))
    }

    fn get(&self, service: Service, path: &str) -> RequestBuilder {
        self.api(Method::GET, service, path)
    }

    /// A request to the administration of a service.
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
        self.done(self.http.get(&format!("{url}/health/ready"))).await
    }

    /// Waits a while until all servers are ready; then, why each one that is not is not. They need some
    /// seconds after a start, or after a server that they depend on was away.
    pub async fn still_not_ready(&self) -> Vec<String> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let reasons = self.not_ready().await;
            if reasons.is_empty() || tokio::time::Instant::now() >= end {
                return reasons;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn not_ready(&self) -> Vec<String> {
        let Addresses { order_url, inventory_url, payment_url, gateway_url, .. } = &self.addresses;
        let mut reasons = Vec::new();
        for (name, url) in
            [("order", order_url), ("inventory", inventory_url), ("payment", payment_url), ("gateway", gateway_url)]
        {
            if let Err(error) = self.ready_at(url).await {
                reasons.push(format!("{name} is not ready: {error}"));
            }
        }
        reasons
    }
}

/// JSON as the content type asks for it; a body of our own DTOs always encodes.
fn with_json<T: Serialize>(request: RequestBuilder, body: &T) -> RequestBuilder {
    request.header(header::ACCEPT, "application/json").json(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_may_change_are_worth_another_try() {
        let refused = |status| SuiteError::Refused { request: String::new(), status, detail: String::new() };
        assert!(refused(StatusCode::SERVICE_UNAVAILABLE).is_temporary());
        assert!(refused(StatusCode::CONFLICT).is_temporary());
        assert!(!refused(StatusCode::UNPROCESSABLE_ENTITY).is_temporary());
    }
}
