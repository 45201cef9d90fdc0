//! REST as a client of the suite speaks it: a status and a body, or no answer.

use std::time::Duration;

use serde_json::Value;

/// The token of a suite in development.
const ADMIN_TOKEN: &str = "dev-admin-token";
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// A client of all servers.
#[derive(Debug, Clone)]
pub struct Rest {
    http: reqwest::Client,
}

/// An answer, its body read; null when it is no JSON.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Rest {
    /// # Errors
    /// When the machine cannot make HTTP connections at all.
    pub fn new() -> reqwest::Result<Self> {
        Ok(Rest { http: reqwest::Client::builder().timeout(TIME_LIMIT).build()? })
    }

    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, url: &str) -> reqwest::Result<Answer> {
        send(self.http.get(url).bearer_auth(ADMIN_TOKEN)).await
    }

    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, url: &str, body: &Value) -> reqwest::Result<Answer> {
        send(self.http.post(url).bearer_auth(ADMIN_TOKEN).json(body)).await
    }

    /// # Errors
    /// When there is no answer.
    pub async fn patch(&self, url: &str, body: &Value) -> reqwest::Result<Answer> {
        send(self.http.patch(url).bearer_auth(ADMIN_TOKEN).json(body)).await
    }

    /// # Errors
    /// When there is no answer.
    pub async fn delete(&self, url: &str) -> reqwest::Result<Answer> {
        send(self.http.delete(url).bearer_auth(ADMIN_TOKEN)).await
    }

    /// Places an order under an idempotency key.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn place(&self, order_url: &str, key: &str, order: &Value) -> reqwest::Result<Answer> {
        send(self.http.post(format!("{order_url}/api/orders")).header("idempotency-key", key).json(order)).await
    }

    /// Charges a card at the card processor, under an idempotency key.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn charge(&self, gateway_url: &str, key: &str, charge: &Value) -> reqwest::Result<Answer> {
        send(self.http.post(format!("{gateway_url}/v1/charges")).header("idempotency-key", key).json(charge)).await
    }
}

async fn send(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    let body = response.bytes().await?;
    Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}
