//! HTTP calls to another system. Each is a span if its trace is sampled, and faults can be injected.

use faults::{FaultPoint, Faults, Injected, Pass, Subject};
use messaging::{Span, TraceContext};
use opentelemetry::{KeyValue, trace::SpanKind};
use reqwest::{Client, Request, Response};
use saga::Step;

/// An HTTP client with tracing and fault injection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Calls {
    client: Client,
    faults: Faults,
    declines: Declines,
    /// The points before a call is made, and before its answer is returned.
    points: [FaultPoint; 2],
}

/// The other system's refusal of a request, for an injected decline; none when the request cannot be refused.
pub type Declines = fn(&Request) -> Option<Response>;

/// The reasons for a missing answer.
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
    /// Whether the other system was not reached, so the call had no effect.
    pub fn is_connect(&self) -> bool {
        match self {
            CallError::Http(error) => error.is_connect(),
            CallError::Unreachable(_) => true,
            CallError::Lost => false,
        }
    }
}

impl Calls {
    pub fn new(client: Client, faults: Faults, declines: Declines) -> Self {
        let points = [FaultPoint::GatewayCall, FaultPoint::AfterChargeBeforeRecord];
        Calls { client, faults, declines, points }
    }

    /// The commands of a coordinator, which no participant declines by a status.
    pub(crate) fn commands(client: Client, faults: Faults) -> Self {
        let points = [FaultPoint::ParticipantCall, FaultPoint::AfterCallBeforeTransition];
        Calls { points, ..Calls::new(client, faults, |_| None) }
    }

    /// Makes one call, as a child of the span in its headers.
    pub async fn make(&self, request: Request) -> Result<Response, CallError> {
        self.make_in(None, request).await
    }

    /// Makes one call in this step of the saga.
    pub async fn make_in(&self, step: Option<&Step>, mut request: Request) -> Result<Response, CallError> {
        let span = open_span(&mut request);
        let answer = match self.faults.is_armed() {
            true => self.call_with_faults(step, request).await,
            false => self.client.execute(request).await.map_err(CallError::from),
        };
        if let Some(mut span) = span {
            match &answer {
                Ok(response) => span.set("http.response.status_code", i64::from(response.status().as_u16())),
                Err(error) => span.fail(error.to_string()),
            }
        }
        answer
    }

    /// Passes the two fault points of a call: before it is made, and before its answer is returned.
    async fn call_with_faults(&self, step: Option<&Step>, request: Request) -> Result<Response, CallError> {
        let subject = Subject { step: step.map(|step| step.name), ..subject(&request) };
        let [before, after] = self.points;
        let of = || Subject::clone(&subject);
        match self.faults.at(before, of).await.map_err(CallError::Unreachable)? {
            Pass::Unharmed => {}
            Pass::Drop => return Err(CallError::Lost),
            Pass::Decline => {
                if let Some(refusal) = (self.declines)(&request) {
                    return Ok(refusal);
                }
            }
            Pass::Duplicate { copies } => {
                for copy in (0..copies).map_while(|_| request.try_clone()) {
                    let repeated = self.client.execute(copy).await;
                    tracing::warn!(status = ?repeated.map(|r| r.status()), "duplicate call, by an injected fault");
                }
            }
        }
        let answer = self.client.execute(request).await?;
        match self.faults.at(after, of).await {
            Ok(Pass::Unharmed) => Ok(answer),
            Ok(_) | Err(_) => Err(CallError::Lost),
        }
    }
}

/// The span of a call, if its trace is sampled; the request's header names it as the parent.
fn open_span(request: &mut Request) -> Option<Span> {
    let parent: TraceContext = request.headers().get("traceparent")?.to_str().ok()?.parse().ok()?;
    let url = request.url();
    let mut attributes = vec![
        KeyValue::new("http.request.method", request.method().to_string()),
        KeyValue::new("url.full", url.to_string()),
    ];
    attributes.extend(url.host_str().map(|host| KeyValue::new("server.address", host.to_owned())));
    attributes.extend(url.port_or_known_default().map(|port| KeyValue::new("server.port", i64::from(port))));
    let span = Span::start(SpanKind::Client, request.method().to_string(), parent, attributes)?;
    if let Ok(value) = span.context().to_string().try_into() {
        request.headers_mut().insert("traceparent", value);
    }
    Some(span)
}

/// The subject that fault scopes are matched with, from the request's headers.
fn subject(request: &Request) -> Subject {
    let baggage = request.headers().get("baggage").and_then(|value| value.to_str().ok());
    Subject::from_baggage(None, baggage.unwrap_or_default())
}
