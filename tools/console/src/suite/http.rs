//! HTTP requests and their answers. A listener can be called for every exchange.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Body, Method, RequestBuilder, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};

use super::SuiteError;

/// Longer than any answer of the suite should take.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// A request, and what came back.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub method: Method,
    pub url: String,
    pub body: Option<String>,
    /// Status and body, or why there is no answer.
    pub answer: Result<(StatusCode, String), String>,
    pub took: Duration,
}

/// Called for every exchange.
pub type Listener = Arc<dyn Fn(&Exchange) + Send + Sync>;

/// An HTTP client with a time limit.
#[derive(Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    listener: Option<Listener>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("listener", &self.listener.is_some()).finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        Ok(Http { client: reqwest::Client::builder().timeout(TIME_LIMIT).build()?, listener: None })
    }

    /// The same client; each request opens a connection.
    pub(super) fn without_keep_alive(self) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder().timeout(TIME_LIMIT).pool_max_idle_per_host(0).build()?;
        Ok(Http { client, ..self })
    }

    /// The same client; it calls the listener for every exchange.
    pub(super) fn with_listener(self, listener: Listener) -> Self {
        Http { listener: Some(listener), ..self }
    }

    pub(crate) fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.client.request(method, url)
    }

    pub(crate) async fn text(&self, request: RequestBuilder) -> Result<String, SuiteError> {
        self.named_text(request).await.map(|(_, body)| body)
    }

    /// The name of the request, and the body of its answer.
    async fn named_text(&self, request: RequestBuilder) -> Result<(String, String), SuiteError> {
        let unreachable = |name: &str, source| SuiteError::Unreachable { request: name.to_owned(), source };
        let request = request.build().map_err(|error| unreachable("a request", error))?;
        // Without the query, which may be long.
        let name = format!("{} {}", request.method(), request.url().as_str().split('?').next().unwrap_or_default());
        let (method, url) = (request.method().clone(), request.url().to_string());
        let body = request.body().and_then(Body::as_bytes).map(|body| String::from_utf8_lossy(body).into_owned());
        let began = Instant::now();
        let answered = self.exchange(request).await;
        if let Some(listener) = &self.listener {
            let answer = answered.as_ref().cloned().map_err(root_cause);
            listener(&Exchange { method, url, body, answer, took: began.elapsed() });
        }
        match answered.map_err(|error| unreachable(&name, error))? {
            (status, body) if status.is_success() => Ok((name, body)),
            (status, body) => Err(SuiteError::Refused { request: name, status, detail: detail(&body) }),
        }
    }

    async fn exchange(&self, request: reqwest::Request) -> Result<(StatusCode, String), reqwest::Error> {
        let answer = self.client.execute(request).await?;
        Ok((answer.status(), answer.text().await?))
    }

    pub(crate) async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, SuiteError> {
        let (request, body) = self.named_text(request).await?;
        serde_json::from_str(&body).map_err(|source| SuiteError::Undecodable { request, source })
    }

    /// The answer, or `None` for 404.
    pub(crate) async fn found<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Option<T>, SuiteError> {
        match self.json(request).await {
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            other => other.map(Some),
        }
    }

    pub(crate) async fn list_of<T: DeserializeOwned>(
        &self,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Vec<T>, SuiteError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut request = request().query(&[("limit", "200")]);
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let page: Page<T> = self.json(request).await?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(items);
            }
        }
    }
}

/// A list, or a page of it.
#[derive(Debug, Deserialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// The innermost cause is the useful one: the outer ones only name the request.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The detail of a problem document, or the beginning of any other body.
fn detail(body: &str) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: Option<String>,
        title: Option<String>,
    }
    serde_json::from_str::<Problem>(body)
        .ok()
        .and_then(|problem| problem.detail.or(problem.title))
        .unwrap_or_else(|| body.chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_detail_and_other_bodies_their_beginning() {
        assert_eq!(detail(r#"{"title": "Conflict", "detail": "the SKU exists"}"#), "the SKU exists");
        assert_eq!(detail(r#"{"title": "Conflict"}"#), "Conflict");
        assert_eq!(detail("<html>"), "<html>");
        assert_eq!(detail(&"é".repeat(900)).chars().count(), 200);
    }
}
