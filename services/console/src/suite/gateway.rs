//! The payment gateway's API: its books, against which ours are audited.

use serde::Deserialize;

use super::{Suite, SuiteError, found, json};

/// What the gateway did in one currency; amounts in minor units.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GatewayTotal {
    pub currency: String,
    pub charged: i64,
    pub refunded: i64,
    pub charges: i64,
    pub refunds: i64,
}

/// What the gateway holds for one idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Charge {
    pub charge_id: Option<String>,
    pub amount: Option<i64>,
    pub currency: Option<String>,
    #[serde(default)]
    pub refunded: bool,
}

/// The gateway's books, all currencies.
pub(crate) async fn totals(http: &reqwest::Client, gateway_url: &str) -> Result<Vec<GatewayTotal>, SuiteError> {
    #[derive(Deserialize)]
    struct Totals {
        totals: Vec<GatewayTotal>,
    }
    let url = format!("{gateway_url}/v1/totals");
    let Totals { totals } = json(http.get(&url), &format!("GET {url}")).await?;
    Ok(totals)
}

/// The charge that went through under a key; `None` when there is none, also when it was refused.
pub(crate) async fn charge(http: &reqwest::Client, gateway_url: &str, key: &str) -> Result<Option<Charge>, SuiteError> {
    let url = format!("{gateway_url}/v1/charges");
    let request = http.get(&url).query(&[("idempotency_key", key)]);
    let known: Option<Charge> = found(request, &format!("GET {url}?idempotency_key={key}")).await?;
    Ok(known.filter(|charge| charge.charge_id.is_some()))
}

impl Suite {
    /// The charge that went through for a payment.
    pub async fn charge(&self, payment_id: uuid::Uuid) -> Result<Option<Charge>, SuiteError> {
        charge(&self.http, &self.addresses.gateway_url, &payment_id.to_string()).await
    }
}
