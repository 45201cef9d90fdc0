//! The payment gateway's API: its books, against which ours are audited.

use serde::{Deserialize, Serialize};

use super::{Http, Suite, SuiteError, with_json};

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

/// What goes wrong at the gateway on purpose.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GatewayFaults {
    pub latency_ms: u64,
    pub error_rate: f64,
    pub decline_rate: f64,
    pub expires_in_seconds: u32,
}

/// The gateway's books, all currencies.
pub(crate) async fn totals(http: &Http, gateway_url: &str) -> Result<Vec<GatewayTotal>, SuiteError> {
    #[derive(Deserialize)]
    struct Totals {
        totals: Vec<GatewayTotal>,
    }
    let Totals { totals } = http.json(http.get(&format!("{gateway_url}/v1/totals"))).await?;
    Ok(totals)
}

/// The charge that went through under a key; `None` when there is none, also when it was refused.
pub(crate) async fn charge(http: &Http, gateway_url: &str, key: &str) -> Result<Option<Charge>, SuiteError> {
    let url = format!("{gateway_url}/v1/charges");
    let known: Option<Charge> = http.found(http.get(&url).query(&[("idempotency_key", key)])).await?;
    Ok(known.filter(|charge| charge.charge_id.is_some()))
}

impl Suite {
    /// The charge that went through for a payment.
    pub async fn charge(&self, payment_id: uuid::Uuid) -> Result<Option<Charge>, SuiteError> {
        charge(&self.http, &self.addresses.gateway_url, &payment_id.to_string()).await
    }

    /// How many charges have gone through so far, in all currencies.
    pub async fn charges(&self) -> Result<i64, SuiteError> {
        let totals = totals(&self.http, &self.addresses.gateway_url).await?;
        Ok(totals.iter().map(|total| total.charges).sum())
    }

    /// Lets the gateway go wrong, in place of however it went wrong before.
    pub async fn arm_gateway(&self, faults: &GatewayFaults) -> Result<(), SuiteError> {
        let url = format!("{}/v1/faults", self.addresses.gateway_url);
        self.http.text(with_json(self.http.post(&url), faults)).await.map(drop)
    }

    /// Lets the gateway work as it should.
    pub async fn disarm_gateway(&self) -> Result<(), SuiteError> {
        let url = format!("{}/v1/faults", self.addresses.gateway_url);
        self.http.text(self.http.request(reqwest::Method::DELETE, &url)).await.map(drop)
    }

    /// Whether the gateway goes wrong on purpose.
    pub async fn gateway_is_armed(&self) -> Result<bool, SuiteError> {
        #[derive(Deserialize)]
        struct Faults {
            armed: bool,
        }
        let url = format!("{}/v1/faults", self.addresses.gateway_url);
        let faults: Faults = self.http.json(self.http.get(&url)).await?;
        Ok(faults.armed)
    }
}
