//! The payment gateway's API: charges, faults, and the ledger that the audit compares.

use std::collections::HashSet;

use reqwest::{Method, RequestBuilder};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Http, Order, Suite, SuiteError, with_json};

/// The gateway's totals in one currency; amounts in minor units.
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
    /// `None` without a successful charge.
    pub charge_id: Option<String>,
    /// The order that the charge names.
    pub order_id: Option<String>,
    pub amount: Option<i64>,
    pub currency: Option<String>,
    #[serde(default)]
    pub refunded: bool,
}

/// Faults to arm at the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct GatewayFaults {
    pub latency_ms: u64,
    pub error_rate: f64,
    pub drop_rate: f64,
    pub decline_rate: f64,
    pub expires_in_seconds: u32,
    /// They are not shown.
    pub hidden: bool,
}

/// What to compare with another ledger.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Reconciliation {
    /// Charges that changed since this ledger position are listed, and left out of the sums.
    pub(crate) since: Option<u64>,
    /// Keys to leave out of the sums.
    pub(crate) without: Vec<Uuid>,
    /// Keys whose outcomes to list.
    pub(crate) keys: Vec<Uuid>,
}

/// The gateway's ledger as of one position.
#[derive(Debug, Deserialize)]
pub(crate) struct Statement {
    pub(crate) position: u64,
    pub(crate) totals: Vec<GatewayTotal>,
    pub(crate) changed: Vec<Charge>,
    pub(crate) outcomes: Vec<Charge>,
}

pub(crate) async fn reconcile(http: &Http, gateway_url: &str, body: &Reconciliation) -> Result<Statement, SuiteError> {
    http.json(with_json(http.request(Method::POST, &format!("{gateway_url}/v1/reconciliations")), body)).await
}

impl Suite {
    /// The successful charge of a payment; `None` when there is none, or when it was declined.
    pub async fn charge(&self, payment_id: Uuid) -> Result<Option<Charge>, SuiteError> {
        let request = self.gateway(Method::GET, "charges").query(&[("idempotency_key", payment_id)]);
        Ok(self.http.found::<Charge>(request).await?.filter(|charge| charge.charge_id.is_some()))
    }

    /// Every successful charge, refunded or not.
    pub async fn charges(&self) -> Result<Vec<Charge>, SuiteError> {
        self.changed_charges(0).await
    }

    async fn changed_charges(&self, since: u64) -> Result<Vec<Charge>, SuiteError> {
        let body = Reconciliation { since: Some(since), ..Reconciliation::default() };
        let Statement { mut changed, .. } = reconcile(&self.http, &self.addresses.gateway_url, &body).await?;
        changed.retain(|charge| charge.charge_id.is_some());
        Ok(changed)
    }

    /// The position of the gateway's ledger.
    pub async fn gateway_position(&self) -> Result<u64, SuiteError> {
        Ok(reconcile(&self.http, &self.addresses.gateway_url, &Reconciliation::default()).await?.position)
    }

    /// How many successful charges for these orders there were since that position, under any key.
    pub async fn charges_since(&self, position: u64, orders: &[Order]) -> Result<usize, SuiteError> {
        let ids: HashSet<String> = orders.iter().map(|order| order.order_id.to_string()).collect();
        let changed = self.changed_charges(position).await?;
        Ok(changed.iter().filter(|charge| charge.order_id.as_ref().is_some_and(|id| ids.contains(id))).count())
    }

    /// Arms these faults at the gateway, in place of earlier ones.
    pub async fn arm_gateway(&self, faults: &GatewayFaults) -> Result<(), SuiteError> {
        self.done(with_json(self.gateway(Method::POST, "faults"), faults)).await
    }

    /// Disarms all faults of the gateway.
    pub async fn disarm_gateway(&self) -> Result<(), SuiteError> {
        self.done(self.gateway(Method::DELETE, "faults")).await
    }

    /// Whether faults are armed at the gateway.
    pub async fn gateway_is_armed(&self) -> Result<bool, SuiteError> {
        #[derive(Deserialize)]
        struct Faults {
            armed: bool,
        }
        Ok(self.http.json::<Faults>(self.gateway(Method::GET, "faults")).await?.armed)
    }

    /// Charges a card at the gateway directly, under an idempotency key.
    pub async fn charge_card(&self, key: &str, charge: &impl Serialize) -> Result<(), SuiteError> {
        let request = self.gateway(Method::POST, "charges").header("idempotency-key", key);
        self.done(with_json(request, charge)).await
    }

    fn gateway(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, &format!("{}/v1/{path}", self.addresses.gateway_url))
    }
}
