//! An HTTP endpoint that receives a webhook, and checks each request by itself.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::eventually;

/// The key is `secret of 24 characters`, with a full stop.
pub const WEBHOOK_SECRET: &str = "whsec_c2VjcmV0IG9mIDI0IGNoYXJhY3RlcnMu";
const KEY: &[u8] = b"secret of 24 characters.";

/// An event, and what it was answered.
#[derive(Debug, Clone)]
pub struct Received {
    /// A CloudEvent.
    pub event: Value,
    pub status: u16,
}

impl Received {
    pub fn id(&self) -> &str {
        self.event["id"].as_str().unwrap_or_default()
    }

    pub fn aggregate(&self) -> &str {
        self.event["subject"].as_str().unwrap_or_default()
    }
}

/// The answer to an event; 0: none, ever.
type Judge = Arc<dyn Fn(&Value) -> u16 + Send + Sync>;

struct Book {
    judge: Judge,
    received: Vec<Received>,
    /// What is wrong with a request.
    wrong: Vec<String>,
}

pub struct Receiver {
    book: Arc<Mutex<Book>>,
    pub url: String,
    server: JoinHandle<()>,
}

impl Receiver {
    /// A receiver that accepts everything.
    pub async fn start() -> anyhow::Result<Self> {
        Self::at("127.0.0.1:0").await
    }

    pub async fn at(address: &str) -> anyhow::Result<Self> {
        let book = Book { judge: Arc::new(|_| 204), received: Vec::new(), wrong: Vec::new() };
        let book = Arc::new(Mutex::new(book));
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let router = Router::new().route("/hook", post(receive)).with_state(Arc::clone(&book));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Receiver { book, url, server })
    }

    /// From now on events are answered so; 0: never.
    pub fn answer(&self, judge: impl Fn(&Value) -> u16 + Send + Sync + 'static) {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).judge = Arc::new(judge);
    }

    /// All requests so far, in order.
    ///
    /// # Errors
    /// When one was not signed as it should be.
    pub fn received(&self) -> anyhow::Result<Vec<Received>> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(book.wrong.is_empty(), "{:#?}", book.wrong);
        Ok(book.received.clone())
    }

    /// Those that were accepted.
    pub fn accepted(&self) -> anyhow::Result<Vec<Received>> {
        Ok(self.received()?.into_iter().filter(|received| received.status == 204).collect())
    }

    /// Waits until this many were accepted.
    pub async fn accepts(&self, count: usize) -> anyhow::Result<Vec<Received>> {
        eventually(async || {
            let accepted = self.accepted()?;
            ensure!(accepted.len() == count, "{} of {count} were accepted: {accepted:#?}", accepted.len());
            anyhow::Ok(Some(accepted))
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(book): State<Arc<Mutex<Book>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let verified = verify(&headers, &body);
    let status = {
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        match verified {
            Ok(event) => {
                let status = (book.judge)(&event);
                book.received.push(Received { event, status });
                status
            }
            Err(error) => {
                book.wrong.push(format!("{error:#}"));
                401
            }
        }
    };
    if status == 0 {
        std::future::pending::<()>().await;
    }
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The event, if the request is as Standard Webhooks says.
fn verify(headers: &HeaderMap, body: &[u8]) -> anyhow::Result<Value> {
    let header =
        |name: &str| -> anyhow::Result<&str> { Ok(headers.get(name).with_context(|| format!("no {name}"))?.to_str()?) };
    let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let expected = format!("v1,{}", base64(&hmac_sha256(KEY, &signed)));
    let signatures = header("webhook-signature")?;
    ensure!(signatures.split(' ').any(|one| one == expected), "{signatures} instead of {expected}");
    let age = time::OffsetDateTime::now_utc().unix_timestamp() - timestamp.parse::<i64>()?;
    ensure!(age.abs() < 300, "it was signed {age} seconds ago");
    ensure!(header("content-type")? == "application/cloudevents+json");
    let event: Value = serde_json::from_slice(body)?;
    ensure!(event["id"] == id && event["specversion"] == "1.0", "{event:#}");
    Ok(event)
}

/// RFC 2104, written out, so that it shares no code with the sender.
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad =
        |byte: u8| -> Vec<u8> { (0..64).map(|place| key.get(place).copied().unwrap_or_default() ^ byte).collect() };
    let inner = Sha256::digest([pad(0x36), message.to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            (0..3).fold(0_u32, |bits, place| bits << 8 | u32::from(group.get(place).copied().unwrap_or_default()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize % 64];
            text.push(if place > group.len() { '=' } else { char::from(letter) });
        }
    }
    text
}
