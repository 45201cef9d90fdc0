//! An HTTP endpoint of the console that receives a webhook and checks its signatures.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use tokio::{
    net::{TcpListener, lookup_host},
    task::JoinHandle,
};
use uuid::Uuid;

/// An event that was accepted.
#[derive(Debug, Clone)]
pub(super) struct Accepted {
    pub(super) id: Uuid,
    pub(super) aggregate: String,
    pub(super) sequence: i64,
}

/// The answer to an event.
type Judge = Arc<dyn Fn(&Value) -> u16 + Send + Sync>;

struct Book {
    key: Vec<u8>,
    judge: Judge,
    accepted: Vec<Accepted>,
    requests: usize,
    unsigned: usize,
}

pub(super) struct Endpoint {
    book: Arc<Mutex<Book>>,
    url: String,
    secret: String,
    server: JoinHandle<()>,
}

impl Endpoint {
    /// Listens where the service at this address can reach it.
    #[expect(clippy::disallowed_methods, reason = "the server ends with the endpoint")]
    pub(super) async fn start(service: &str) -> anyhow::Result<Self> {
        let key = crate::secret().into_bytes();
        let secret = format!("whsec_{}", BASE64_STANDARD.encode(&key));
        let book = Book { key, judge: Arc::new(|_| 204), accepted: Vec::new(), requests: 0, unsigned: 0 };
        let book = Arc::new(Mutex::new(book));
        let listener =
            TcpListener::bind((own_address(service).await?, 0)).await.context("cannot listen for the webhook")?;
        let url = format!("http://{}/webhook", listener.local_addr()?);
        let router = Router::new().route("/webhook", post(receive)).with_state(Arc::clone(&book));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Endpoint { book, url, secret, server })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// From now on each event is answered so.
    pub(super) fn answer(&self, judge: impl Fn(&Value) -> u16 + Send + Sync + 'static) {
        lock(&self.book).judge = Arc::new(judge);
    }

    /// In the order of their arrival, with duplicates.
    pub(super) fn accepted(&self) -> Vec<Accepted> {
        lock(&self.book).accepted.clone()
    }

    pub(super) fn requests(&self) -> usize {
        lock(&self.book).requests
    }

    /// How many requests had no valid signature.
    pub(super) fn unsigned(&self) -> usize {
        lock(&self.book).unsigned
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This machine's address as the service sees it. A UDP socket sends nothing when it connects.
async fn own_address(service: &str) -> anyhow::Result<std::net::IpAddr> {
    let host = service.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let to = lookup_host(host).await?.find(SocketAddr::is_ipv4).context("the service has no IPv4 address")?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

async fn receive(State(book): State<Arc<Mutex<Book>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let mut book = lock(&book);
    book.requests += 1;
    let Some(event) = verified(&book.key, &headers, &body) else {
        book.unsigned += 1;
        return StatusCode::UNAUTHORIZED;
    };
    let status = StatusCode::from_u16((book.judge)(&event)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    if let (true, Ok(id), Ok(sequence)) = (status.is_success(), text("id").parse(), text("sequence").parse()) {
        let aggregate = text("subject").to_owned();
        book.accepted.push(Accepted { id, aggregate, sequence });
    }
    status
}

/// The event, if its signature is that of Standard Webhooks.
fn verified(key: &[u8], headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(format!("{}.{}.", header("webhook-id")?, header("webhook-timestamp")?).as_bytes());
    mac.update(body);
    let signature = BASE64_STANDARD.decode(header("webhook-signature")?.strip_prefix("v1,")?).ok()?;
    mac.verify_slice(&signature).ok()?;
    serde_json::from_slice(body).ok()
}
