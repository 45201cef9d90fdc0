//! Calls to another system over HTTP, as a tower service; a layer around it lets faults hit them.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use faults::{FaultPoint, Faults, Injected, Pass, Subject};
use futures_util::future::BoxFuture;
use messaging::{Span, TraceContext};
use opentelemetry::{KeyValue, trace::SpanKind};
use reqwest::{Client, Request, Response};
use tower::{Layer, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Whoever makes the calls.
pub type Calls = BoxCloneSyncService<Request, Response, CallError>;

/// What a refusal of this request would look like; none when it cannot be refused.
pub type Declines = fn(&Request) -> Option<Response>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error("the call was never made")]
    Unreachable(#[source] Injected),
    #[error("the answer is lost")]
    Lost,
}

impl CallError {
    /// Whether the other system was not reached, so that the call had no effect.
    pub fn is_connect(&self) -> bool {
        match self {
            CallError::Http(error) => error.is_connect(),
            CallError::Unreachable(_) => true,
            CallError::Lost => false,
        }
    }
}

/// Lets faults hit what goes through `client`.
pub fn hit_calls(client: Client, faults: Faults, declines: Declines) -> Calls {
    Calls::new(FaultLayer { faults, declines }.layer(client.map_err(CallError::from)))
}

/// Makes the two points of a call: before it is made, and before its answer is told.
struct FaultLayer {
    faults: Faults,
    declines: Declines,
}

#[derive(Clone)]
struct FaultService<S> {
    inner: S,
    faults: Faults,
    declines: Declines,
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService { inner, faults: self.faults.clone(), declines: self.declines }
    }
}

impl<S> Service<Request> for FaultService<S>
where
    S: Service<Request, Response = Response, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Response, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let mut request = request;
        let span = open_span(&mut request);
        let waiting = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, waiting);
        let (faults, declines) = (self.faults.clone(), self.declines);
        if !faults.is_armed() {
            let mut ready = ready;
            return Box::pin(close_span(span, ready.call(request)));
        }
        Box::pin(close_span(span, hit(ready, faults, declines, request)))
    }
}

/// The span of a call, where its trace is sampled; whoever is called goes on from it.
fn open_span(request: &mut Request) -> Option<Span> {
    let above: TraceContext = request.headers().get("traceparent")?.to_str().ok()?.parse().ok()?;
    let url = request.url();
    let mut facts = vec![
        KeyValue::new("http.request.method", request.method().to_string()),
        KeyValue::new("url.full", url.to_string()),
    ];
    facts.extend(url.host_str().map(|host| KeyValue::new("server.address", host.to_owned())));
    facts.extend(url.port_or_known_default().map(|port| KeyValue::new("server.port", i64::from(port))));
    let span = Span::start(SpanKind::Client, request.method().to_string(), above, facts)?;
    if let Ok(value) = span.context().to_string().try_into() {
        request.headers_mut().insert("traceparent", value);
    }
    Some(span)
}

async fn close_span(
    span: Option<Span>,
    call: impl Future<Output = Result<Response, CallError>>,
) -> Result<Response, CallError> {
    let answer = call.await;
    if let Some(mut span) = span {
        match &answer {
            Ok(response) => span.set("http.response.status_code", i64::from(response.status().as_u16())),
            Err(error) => span.fail(error.to_string()),
        }
    }
    answer
}

async fn hit<S>(mut inner: S, faults: Faults, declines: Declines, request: Request) -> Result<Response, CallError>
where
    S: Service<Request, Response = Response, Error = CallError> + Clone + Send,
    S::Future: Send,
{
    let subject = Arc::new(subject(&request));
    let of = || Subject::clone(&subject);
    match faults.at(FaultPoint::GatewayCall, of).await.map_err(CallError::Unreachable)? {
        Pass::Unharmed => {}
        Pass::Drop => return Err(CallError::Lost),
        Pass::Decline => {
            if let Some(refusal) = declines(&request) {
                return Ok(refusal);
            }
        }
        Pass::Duplicate { copies } => {
            for copy in (0..copies).map_while(|_| request.try_clone()) {
                let repeated = inner.clone().oneshot(copy).await;
                tracing::warn!(status = ?repeated.map(|r| r.status()), "called once more on purpose");
            }
        }
    }
    let answer = inner.call(request).await?;
    match faults.at(FaultPoint::AfterChargeBeforeRecord, of).await {
        Ok(Pass::Unharmed) => Ok(answer),
        Ok(_) | Err(_) => Err(CallError::Lost),
    }
}

/// What a fault may be limited to, as far as the request's headers tell it.
fn subject(request: &Request) -> Subject {
    let baggage = request.headers().get("baggage").and_then(|value| value.to_str().ok());
    Subject::from_baggage(None, baggage.unwrap_or_default())
}
