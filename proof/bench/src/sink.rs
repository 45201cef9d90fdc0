//! A collector that accepts all spans and stores none; it replaces one on another machine.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Context;
use axum::{Router, body::Bytes, extract::State, http::header, routing::post};
use tokio::{net::TcpListener, task::JoinSet};

#[derive(Debug)]
pub(crate) struct Sink {
    url: String,
    bytes: Arc<AtomicU64>,
    /// Ends with the sink.
    _server: JoinSet<std::io::Result<()>>,
}

impl Sink {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the collector")?;
        let url = format!("http://{}", listener.local_addr()?);
        let bytes = Arc::new(AtomicU64::new(0));
        let routes = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&bytes));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await });
        Ok(Sink { url, bytes, _server: server })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The number of bytes received.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// An empty body is a complete answer: an `ExportTraceServiceResponse` without rejected spans.
async fn take(State(bytes): State<Arc<AtomicU64>>, spans: Bytes) -> [(header::HeaderName, &'static str); 1] {
    bytes.fetch_add(spans.len() as u64, Ordering::Relaxed);
    [(header::CONTENT_TYPE, "application/x-protobuf")]
}
