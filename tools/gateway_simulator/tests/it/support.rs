//! A simulator per test, and its client.

use std::{path::PathBuf, time::Duration};

use gateway_simulator::{Config, RunningGateway};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Lab {
    pub(crate) gateway: RunningGateway,
    pub(crate) client: Client,
    folder: TempDir,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::in_process(journal_in(&folder));
        config.slow_answer = Duration::from_millis(300);
        adjust(&mut config);
        let gateway = gateway_simulator::start(config).await.unwrap();
        Self { gateway, client: Client::new(), folder }
    }

    /// Crashes the simulator, calls `meanwhile` with its journal, and starts it again.
    pub(crate) async fn crash_and_restart(self, meanwhile: impl FnOnce(PathBuf)) -> Self {
        let Self { gateway, client, folder } = self;
        drop(gateway);
        // Opening waits until the crashed one's writer has released the file.
        drop(open(journal_in(&folder)).await);
        meanwhile(journal_in(&folder));
        let gateway = open(journal_in(&folder)).await;
        Self { gateway, client, folder }
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.gateway.base_url))
    }

    /// The JSON body of a GET.
    pub(crate) async fn json(&self, path: &str) -> Value {
        self.get(path).await.json().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(format!("{}{path}", self.gateway.base_url)).send().await.unwrap()
    }

    pub(crate) fn charge(&self, key: &str, token: &str, amount: i64) -> RequestBuilder {
        self.post("/v1/charges").header("Idempotency-Key", key).json(&charge_body(token, amount))
    }

    pub(crate) async fn charged(&self, key: &str, amount: i64) -> String {
        let answer = answer(self.charge(key, "tok_visa", amount)).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body["charge_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn void(&self, key: &str) -> RequestBuilder {
        self.post("/v1/voids").header("Idempotency-Key", key)
    }

    pub(crate) async fn arm(&self, faults: Value) -> Answer {
        answer(self.post("/v1/faults").json(&faults)).await
    }

    /// Whether a slow charge is in progress, or already captured on a slow machine.
    pub(crate) async fn is_charging(&self, key: &str) -> bool {
        let metrics = self.get("/metrics").await.text().await.unwrap();
        // The charge and the request for the metrics themselves.
        metrics.contains("http_server_requests_in_progress 2") || self.knows(key).await
    }

    pub(crate) async fn knows(&self, key: &str) -> bool {
        self.get(&format!("/v1/charges?idempotency_key={key}")).await.status() == 200
    }

    pub(crate) async fn totals(&self) -> Value {
        let body = self.json("/v1/totals").await;
        body["totals"].as_array().unwrap().iter().find(|row| row["currency"] == "USD").cloned().unwrap_or(Value::Null)
    }
}

/// Waits until `condition` holds, at most for 20 s.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    testkit::eventually(Duration::from_secs(20), condition).await.expect(what);
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

pub(crate) async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    Answer {
        status: response.status().as_u16(),
        replayed: header("idempotency-replayed").as_deref() == Some("true"),
        content_type: header("content-type").unwrap_or_default(),
        body: response.json().await.unwrap_or(Value::Null),
    }
}

pub(crate) fn charge_body(token: &str, amount: i64) -> Value {
    json!({"amount": amount, "currency": "USD", "token": token, "order_id": "order-1", "customer_id": "alice"})
}

pub(crate) fn totals(charged: i64, refunded: i64, charges: u64, refunds: u64, declines: u64) -> Value {
    json!({
        "currency": "USD", "charged": charged, "refunded": refunded,
        "charges": charges, "refunds": refunds, "declines": declines,
    })
}

fn journal_in(folder: &TempDir) -> PathBuf {
    folder.path().join("gateway.journal")
}

async fn open(journal: PathBuf) -> RunningGateway {
    gateway_simulator::start(Config::in_process(journal)).await.unwrap()
}
