//! A REST client for tests.

use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{eventually, order_of};

/// A client of one replica, with the administrator's token.
#[derive(Clone)]
pub struct Client {
    base: String,
    http: reqwest::Client,
}

/// An answer, its body read.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The body, if the status is this one.
    pub fn expect(self, status: u16) -> anyhow::Result<Value> {
        ensure!(self.status == status, "{} instead of {status}: {:#}", self.status, self.body);
        Ok(self.body)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Client {
    pub fn new(base: &str) -> Self {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        Client { base: base.to_owned(), http: http.expect("a client without TLS") }
    }

    /// `http://HOST:PORT`
    pub fn base(&self) -> &str {
        &self.base
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(self.request(Method::GET, path)).await
    }

    /// Waits until the body at this path fits, and returns it.
    #[track_caller]
    pub fn until(&self, path: &str, fits: impl Fn(&Value) -> bool) -> impl Future<Output = anyhow::Result<Value>> {
        eventually(async move || {
            let body = self.get(path).await?.expect(200)?;
            ensure!(fits(&body), "{path} shows {body:#}");
            anyhow::Ok(Some(body))
        })
    }

    /// The items of the list at this path.
    pub async fn items(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let list = self.get(path).await?.expect(200)?;
        list["items"].as_array().cloned().with_context(|| format!("{path} is no list: {list:#}"))
    }

    /// Waits until the list at this path has this many items, and returns them.
    pub async fn until_items(&self, path: &str, count: usize) -> anyhow::Result<Vec<Value>> {
        eventually(async || {
            let items = self.items(path).await?;
            ensure!(items.len() == count, "{path} lists {} items: {items:#?}", items.len());
            anyhow::Ok(Some(items))
        })
        .await
    }

    /// Why it is not ready, according to one of its checks.
    pub async fn unready(&self, check: &str) -> anyhow::Result<String> {
        let body = self.get("/health/ready").await?.expect(503)?;
        Ok(body["checks"][check]["reason"].as_str().unwrap_or_default().to_owned())
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(self.request(Method::PATCH, path).json(body)).await
    }

    pub async fn delete(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(self.request(Method::DELETE, path).json(body)).await
    }

    /// A POST without a body that must be answered with 200.
    pub async fn act(&self, path: &str) -> anyhow::Result<Value> {
        self.post(path, &json!({})).await?.expect(200)
    }

    /// Places an order under a key, once.
    pub async fn place(&self, key: &str, order: &Value) -> anyhow::Result<Answer> {
        self.send(self.request(Method::POST, "/api/orders").header("idempotency-key", key).json(order)).await
    }

    /// Places an order, which must be accepted, and returns it.
    pub async fn order(&self, lines: &[(&str, i64)], token: &str) -> anyhow::Result<Value> {
        self.post("/api/orders", &order_of(lines, token)).await?.expect(201)
    }

    /// Places `count` orders for one unit of A, one after the other.
    pub async fn order_many(&self, count: usize, token: &str) -> anyhow::Result<Vec<Value>> {
        let mut placed = Vec::with_capacity(count);
        for _ in 0..count {
            placed.push(self.order(&[("A", 1)], token).await?);
        }
        Ok(placed)
    }

    /// The same, each under a key until it is accepted, despite crashes.
    pub async fn order_many_until_accepted(&self, count: usize) -> anyhow::Result<()> {
        for n in 0..count {
            self.place_until_accepted(&n.to_string(), &order_of(&[("A", 1)], "tok_visa")).await?;
        }
        Ok(())
    }

    /// The saga of an order.
    pub async fn saga(&self, order: &Value) -> anyhow::Result<Value> {
        self.get(&format!("/api/sagas/{}", order["saga_id"].as_str().unwrap_or_default())).await?.expect(200)
    }

    /// Creates a product in inventory, at this price in cents.
    pub async fn create_product(&self, sku: &str, price: i64, quantity: i64) -> anyhow::Result<Answer> {
        let price = json!({"amount": price, "currency": "USD"});
        let product = json!({"sku": sku, "name": sku.to_lowercase(), "initial_quantity": quantity, "price": price});
        self.post("/api/products", &product).await
    }

    /// Repeats the order under its key until it is accepted, despite crashes.
    pub async fn place_until_accepted(&self, key: &str, order: &Value) -> anyhow::Result<Value> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            match self.place(key, order).await {
                Ok(accepted) if matches!(accepted.status, 200 | 201) => return Ok(accepted.body),
                refused if tokio::time::Instant::now() > deadline => {
                    anyhow::bail!("{key} is not accepted: {refused:?}")
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        let needs_token = path.starts_with("/api/admin") || path.starts_with("/api/saga/");
        if needs_token { request.bearer_auth("dev-admin-token") } else { request }
    }

    pub async fn send(&self, request: RequestBuilder) -> anyhow::Result<Answer> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?;
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        Ok(Answer { status, headers, body: serde_json::from_slice(&body).unwrap_or_else(|_| text()) })
    }
}
