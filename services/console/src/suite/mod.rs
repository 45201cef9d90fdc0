//! A running suite, seen through its REST APIs as any client sees it. The contract is repeated here
//! in DTOs of our own, so a service that breaks it is noticed.

mod gateway;
mod inventory;
mod order;
mod payment;
mod wait;

use std::time::Duration;

pub use gateway::{Charge, GatewayTotal};
pub(crate) use gateway::{charge, totals as gateway_totals};
pub use inventory::{NewProduct, Product, Reservation, ReservationLine};
pub use order::{NewOrder, Order, OrderLine, ProductView, Saga, SagaStep};
pub use payment::Payment;
use reqwest::{RequestBuilder, StatusCode, header};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
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

    /// The status of a refusal.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            SuiteError::Refused { status, .. } => Some(*status),
            SuiteError::Unreachable { .. } | SuiteError::Undecodable { .. } => None,
        }
    }
}

/// A client of all four servers.
#[derive(Debug, Clone)]
pub struct Suite {
    http: reqwest::Client,
    addresses: Addresses,
}

/// Longer than any answer of the suite should take.
const TIME_LIMIT: Duration = Duration::from_secs(10);

impl Suite {
    /// # Errors
    /// When the machine cannot make HTTP connections at all.
    pub fn new(addresses: Addresses) -> Result<Self, reqwest::Error> {
        Ok(Suite { http: client()?, addresses })
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
            let url = format!("{url}/health/ready");
            if let Err(error) = text(self.http.get(&url), &format!("GET {url}")).await {
                reasons.push(format!("{name} is not ready: {error}"));
            }
        }
        reasons
    }
}

/// An HTTP client with a time limit.
pub(crate) fn client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder().timeout(TIME_LIMIT).build()
}

/// A page of a list.
#[derive(Debug, Deserialize)]
struct Page<T> {
    items: Vec<T>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// The answer's body, if its status is a success.
async fn text(request: RequestBuilder, name: &str) -> Result<String, SuiteError> {
    let unreachable = |source| SuiteError::Unreachable { request: name.to_owned(), source };
    let answer = request.send().await.map_err(unreachable)?;
    let status = answer.status();
    let body = answer.text().await.map_err(unreachable)?;
    if status.is_success() {
        return Ok(body);
    }
    Err(SuiteError::Refused { request: name.to_owned(), status, detail: detail(&body) })
}

/// The answer, decoded.
async fn json<T: DeserializeOwned>(request: RequestBuilder, name: &str) -> Result<T, SuiteError> {
    let body = text(request, name).await?;
    serde_json::from_str(&body).map_err(|source| SuiteError::Undecodable { request: name.to_owned(), source })
}

/// The answer, or `None` for 404.
async fn found<T: DeserializeOwned>(request: RequestBuilder, name: &str) -> Result<Option<T>, SuiteError> {
    match json(request, name).await {
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
        other => other.map(Some),
    }
}

/// All pages of a list.
async fn list<T: DeserializeOwned>(http: &reqwest::Client, url: &str) -> Result<Vec<T>, SuiteError> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut request = http.get(url).query(&[("limit", "200")]);
        if let Some(cursor) = &cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        let page: Page<T> = json(request, &format!("GET {url}")).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}

/// The sentence of a problem document, or the beginning of whatever else was answered.
fn detail(body: &str) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: Option<String>,
        title: Option<String>,
    }
    serde_json::from_str::<Problem>(body)
        .ok()
        .and_then(|problem| problem.detail.or(problem.title))
        .unwrap_or_else(|| body.chars().take(200).collect())
}

/// JSON as the content type asks for it; a body of our own DTOs always encodes.
fn with_json<T: Serialize>(request: RequestBuilder, body: &T) -> RequestBuilder {
    request.header(header::ACCEPT, "application/json").json(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_tells_its_detail_and_anything_else_its_beginning() {
        assert_eq!(detail(r#"{"title": "Conflict", "detail": "the SKU exists"}"#), "the SKU exists");
        assert_eq!(detail(r#"{"title": "Conflict"}"#), "Conflict");
        assert_eq!(detail("<html>"), "<html>");
        assert_eq!(detail(&"é".repeat(900)).chars().count(), 200);
    }

    #[test]
    fn only_answers_that_may_change_are_worth_another_try() {
        let refused = |status| SuiteError::Refused { request: String::new(), status, detail: String::new() };
        assert!(refused(StatusCode::SERVICE_UNAVAILABLE).is_temporary());
        assert!(refused(StatusCode::CONFLICT).is_temporary());
        assert!(!refused(StatusCode::UNPROCESSABLE_ENTITY).is_temporary());
    }
}
