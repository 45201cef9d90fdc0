//! The payment gateway's API: its books, against which ours are audited.

use reqwest::{Method, RequestBuilder};
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
    pub drop_rate: f64,
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

impl Suite {
    /// The charge that went through for a payment; `None` when there is none, also when it was refused.
    pub async fn charge(&self, payment_id: Uuid) -> Result<Option<Charge>, SuiteError> {
        let request = self.gateway(Method::GET, "charges").query(&[("idempotency_key", payment_id)]);
        Ok(self.http.found::<Charge>(request).await?.filter(|charge| charge.charge_id.is_some()))
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
        self.done(with_json(self.gateway(Method::POST, "faults"), faults)).await
    }

    /// Lets the gateway work as it should.
    pub async fn disarm_gateway(&self) -> Result<(), SuiteError> {
        self.done(self.gateway(Method::DELETE, "faults")).await
    }

    /// Whether the gateway goes wrong on purpose.
    pub async fn gateway_is_armed(&self) -> Result<bool, SuiteError> {
        #[derive(Deserialize)]
        struct Faults {
            armed: bool,
        }
        Ok(self.http.json::<Faults>(self.gateway(Method::GET, "faults")).await?.armed)
    }

    /// Charges a card past payment, under an idempotency key.
    pub async fn charge_card(&self, key: &str, charge: &impl Serialize) -> Result<(), SuiteError> {
        let request = self.gateway(Method::POST, "charges").header("idempotency-key", key);
        self.done(with_json(request, charge)).await
    }

    fn gateway(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, &format!("{}/v1/{path}", self.addresses.gateway_url))
    }
}
