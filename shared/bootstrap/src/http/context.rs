//! The context of a request: its correlation id, from the client or generated here, and its server span. Every response carries
//! both, so that it can be matched with its logs and its trace.

use std::{collections::HashMap, convert::Infallible};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, request::Parts},
    response::Response,
};
use opentelemetry::{
    Context,
    propagation::TextMapPropagator as _,
    trace::{SpanContext, TraceContextExt as _, TraceState},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{IdGenerator as _, RandomIdGenerator},
};
use tracing::{Instrument as _, Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use uuid::Uuid;

/// Header that names one business activity across services.
pub const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// Header of the W3C trace context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The context that a handler passes to the work it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// Names the business activity across services: 1 to 128 visible ASCII characters.
    pub correlation_id: String,
    /// The server span in W3C form; valid even when the trace is not sampled.
    pub traceparent: String,
}

impl RequestContext {
    /// The id of the request's trace, if it is sampled.
    pub(super) fn sampled_trace(&self) -> Option<String> {
        let mut parts = self.traceparent.split('-').skip(1);
        let (trace_id, flags) = (parts.next()?, parts.nth(1)?);
        let sampled = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
        sampled.then(|| trace_id.to_owned())
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().cloned();
        Ok(known.unwrap_or_else(|| Self {
            correlation_id: correlation_id_of(&parts.headers),
            traceparent: traceparent_of(&Span::none(), &parent_of(&parts.headers)),
        }))
    }
}

/// Middleware: opens the server span and adds the context to the request and its response.
pub(crate) async fn with_request_context<F: Future<Output = Response>>(
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let correlation_id = correlation_id_of(request.headers());
    let parent = parent_of(request.headers());
    let span = server_span(&request, &correlation_id);
    // Fails only when no trace layer is installed, and then there are no spans.
    let _ = span.set_parent(parent.clone());
    let traceparent = traceparent_of(&span, &parent);
    if let Some(trace_id) = traceparent.split('-').nth(1) {
        span.record("trace_id", trace_id);
    }
    let context = RequestContext { correlation_id, traceparent };
    request.extensions_mut().insert(context.clone());

    let mut response = next(request).instrument(span.clone()).await;

    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    put(response.headers_mut(), CORRELATION_ID, &context.correlation_id);
    put(response.headers_mut(), TRACEPARENT, &context.traceparent);
    response
}

/// The span's context in W3C form. Without a trace layer (in unit tests) it has the parent's trace and a new span id, so that the
/// stored context is always valid.
fn traceparent_of(span: &Span, parent: &Context) -> String {
    let own = span.context().span().span_context().clone();
    let context = if own.is_valid() { own } else { generated(parent) };
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
}

fn generated(parent: &Context) -> SpanContext {
    let ids = RandomIdGenerator::default();
    let parent = parent.span().span_context().clone();
    let trace_id = if parent.is_valid() { parent.trace_id() } else { ids.new_trace_id() };
    SpanContext::new(trace_id, ids.new_span_id(), parent.trace_flags(), false, TraceState::default())
}

fn server_span(request: &Request, correlation_id: &str) -> Span {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let method = known_method(request.method());
    // A span is named by its route, never by its path, which has too many values.
    let name = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
    tracing::info_span!(
        "request",
        otel.name = name,
        otel.kind = "server",
        otel.status_code = field::Empty,
        http.request.method = method,
        http.route = route,
        url.path = request.uri().path(),
        http.response.status_code = field::Empty,
        correlation_id,
        trace_id = field::Empty,
    )
}

/// The method as a label with a limited number of values: clients can send any method.
pub(crate) fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("OTHER")
}

fn correlation_id_of(headers: &HeaderMap) -> String {
    let given = headers.get(CORRELATION_ID).and_then(|value| value.to_str().ok());
    given
        .filter(|id| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()))
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

fn parent_of(headers: &HeaderMap) -> Context {
    let named = |name: &str| Some((name.to_owned(), headers.get(name)?.to_str().ok()?.to_owned()));
    let carrier: HashMap<String, String> = ["traceparent", "tracestate"].into_iter().filter_map(named).collect();
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::{
        Router,
        body::Body,
        middleware::{self, Next},
        routing::get,
    };
    use tower::ServiceExt as _;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    async fn headers_of(request: axum::http::request::Builder) -> HeaderMap {
        let app = Router::new()
            .route("/", get(|context: RequestContext| async move { context.traceparent }))
            .layer(middleware::from_fn(|request, next: Next| with_request_context(request, |r| next.run(r))));
        app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().headers().clone()
    }

    #[tokio::test]
    async fn a_valid_correlation_id_is_kept_and_an_invalid_one_replaced() {
        let kept = headers_of(Request::get("/").header(CORRELATION_ID, "abc-1")).await;
        assert_eq!(kept[CORRELATION_ID], "abc-1");
        for bad in ["", "a b", &"x".repeat(129)] {
            let made = headers_of(Request::get("/").header(CORRELATION_ID, bad)).await;
            let id = made[CORRELATION_ID].to_str().unwrap();
            assert_eq!(Uuid::parse_str(id).unwrap().get_version_num(), 7);
        }
    }

    #[tokio::test]
    async fn the_response_continues_the_trace_in_a_new_span() {
        let headers = headers_of(Request::get("/").header(TRACEPARENT, PARENT)).await;
        let traceparent = headers[TRACEPARENT].to_str().unwrap();
        assert!(traceparent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert!(traceparent.ends_with("-01") && traceparent != PARENT);
    }

    #[test]
    fn only_a_sampled_trace_becomes_an_exemplar() {
        let of = |traceparent: &str| {
            let context = RequestContext { correlation_id: "c".to_owned(), traceparent: traceparent.to_owned() };
            context.sampled_trace()
        };
        assert_eq!(of(PARENT).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(of(&PARENT.replace("-01", "-00")), None);
        assert_eq!(of("nonsense"), None);
    }

    #[tokio::test]
    async fn a_broken_traceparent_starts_a_new_valid_trace() {
        let headers = headers_of(Request::get("/").header(TRACEPARENT, "00-0-0-0")).await;
        let traceparent = headers[TRACEPARENT].to_str().unwrap();
        assert_eq!(traceparent.len(), 55);
        assert!(!traceparent.starts_with("00-00000000000000000000000000000000"));
    }

    #[tokio::test]
    async fn the_response_names_the_server_span_sampled_or_not() {
        use opentelemetry::trace::TracerProvider as _;
        use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
        use tracing::instrument::WithSubscriber as _;
        use tracing_subscriber::layer::SubscriberExt as _;

        for (sampler, flags) in [(Sampler::AlwaysOn, "-01"), (Sampler::AlwaysOff, "-00")] {
            let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
            let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
            let subscriber = tracing_subscriber::registry().with(layer);
            let headers = headers_of(Request::get("/")).with_subscriber(subscriber).await;
            let traceparent = headers[TRACEPARENT].to_str().unwrap();
            assert!(traceparent.len() == 55 && traceparent.ends_with(flags), "{traceparent}");
        }
    }
}
