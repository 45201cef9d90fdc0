//! The payment gateway's API: its books, against which ours are audited.

use serde::{Deserialize, Serialize};

use uuid::Uuid;

use super::{Http, Order, Suite, SuiteError, with_json};

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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub idempotency_key: String,
    /// `None` when nothing went through.
    pub charge_id: Option<String>,
    /// The order that the charge names.
    pub order_id: Option<String>,
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

/// What to compare with other books.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Reconciliation {
    /// What has changed since this position of the ledger is listed, and left out of the sums.
    pub(crate) since: Option<u64>,
    /// Keys that are left out of the sums.
    pub(crate) without: Vec<Uuid>,
    /// Keys whose outcomes are listed.
    pub(crate) keys: Vec<Uuid>,
}

/// The gateway's books as of one position of its ledger.
#[derive(Debug, Deserialize)]
pub(crate) struct Statement {
    pub(crate) position: u64,
    pub(crate) totals: Vec<GatewayTotal>,
    pub(crate) changed: Vec<Charge>,
    pub(crate) outcomes: Vec<Charge>,
}

pub(crate) async fn reconcile(http: &Http, gateway_url: &str, asked: &Reconciliation) -> Result<Statement, SuiteError> {
    http.json(with_json(http.post(&format!("{gateway_url}/v1/reconciliations")), asked)).await
}

/// The charge that went through under a key; `None` when there is none, also when it was refused.
pub(crate) async fn charge(http: &Http, gateway_url: &str, key: &str) -> Result<Option<Charge>, SuiteError> {
    let url = format!("{gateway_url}/v1/charges");
    let known: Option<Charge> = http.found(http.get(&url).query(&[("idempotency_key", key)])).await?;
    Ok(known.filter(|charge| charge.charge_id.is_some()))
}

impl Suite {
    /// The charge that went through for a payment.
    pub async fn charge(&self, payment_id: Uuid) -> Result<Option<Charge>, SuiteError> {
        charge(&self.http, &self.addresses.gateway_url, &payment_id.to_string()).await
    }

    /// Every charge that went through, refunded or not.
    pub async fn charges(&self) -> Result<Vec<Charge>, SuiteError> {
        let asked = Reconciliation { since: Some(0), ..Reconciliation::default() };
        let Statement { changed, .. } = reconcile(&self.http, &self.addresses.gateway_url, &asked).await?;
        Ok(changed.into_iter().filter(|charge| charge.charge_id.is_some()).collect())
    }

    /// How far the gateway's ledger is.
    pub async fn gateway_position(&self) -> Result<u64, SuiteError> {
        Ok(reconcile(&self.http, &self.addresses.gateway_url, &Reconciliation::default()).await?.position)
    }

    /// How many charges for these orders have gone through since then, under whatever keys.
    pub async fn charges_since(&self, position: u64, orders: &[Order]) -> Result<usize, SuiteError> {
        let asked = Reconciliation { since: Some(position), ..Reconciliation::default() };
        let Statement { changed, .. } = reconcile(&self.http, &self.addresses.gateway_url, &asked).await?;
        let of_these =
            |charge: &&Charge| orders.iter().any(|order| charge.order_id == Some(order.order_id.to_string()));
        Ok(changed.iter().filter(|charge| charge.charge_id.is_some()).filter(of_these).count())
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
