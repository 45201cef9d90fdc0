//! Calls to another system over HTTP, as a tower service; a layer around it lets faults hit them.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use faults::{FaultPoint, Faults, Injected, Pass, Subject};
use futures_util::future::BoxFuture;
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
        let waiting = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, waiting);
        let (faults, declines) = (self.faults.clone(), self.declines);
        if !faults.is_armed() {
            let mut ready = ready;
            return Box::pin(ready.call(request));
        }
        Box::pin(hit(ready, faults, declines, request))
    }
}

async fn hit<S>(mut inner: S, faults: Faults, declines: Declines, request: Request) -> Result<Response, CallError>
where
    S: Service<Request, Response = Response, Error = CallError> + Clone + Send,
    S::Future: Send,
{
    let subject = Arc::new(subject(&request));
    let of = || Subject::clone(&subject);
    match faults.pass(FaultPoint::GatewayCall, of).await.map_err(CallError::Unreachable)? {
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
    match faults.pass(FaultPoint::AfterChargeBeforeRecord, of).await {
        Ok(Pass::Unharmed) => Ok(answer),
        Ok(_) | Err(_) => Err(CallError::Lost),
    }
}

/// What a fault may be limited to, as far as the request's headers tell it.
fn subject(request: &Request) -> Subject {
    let baggage = request.headers().get("baggage").and_then(|value| value.to_str().ok());
    Subject::from_baggage(None, baggage.unwrap_or_default())
}
