//! The metrics of the HTTP server: requests by outcome, their duration, and how many are in progress. Labels have few values: the
//! route is the matched pattern, not the path.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request},
    response::Response,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Unit,
};

use super::{RequestContext, context::known_method};
use crate::metrics::{Metrics, SecondsFamily, TraceLabel, seconds_histogram};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: &'static str,
    route: String,
    status: u16,
}

/// The HTTP server's metrics.
#[derive(Clone, Debug)]
pub(crate) struct HttpMetrics {
    requests: Family<Labels, Counter>,
    duration: SecondsFamily<Labels>,
    in_progress: Gauge,
}

impl HttpMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let this = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(seconds_histogram),
            in_progress: Gauge::default(),
        };
        metrics.register(|registry| {
            registry.register("http_server_requests", "HTTP requests answered", this.requests.clone());
            registry.register_with_unit(
                "http_server_request_duration",
                "Time from a request's headers to its answer",
                Unit::Seconds,
                this.duration.clone(),
            );
            registry.register(
                "http_server_requests_in_progress",
                "HTTP requests not yet answered",
                this.in_progress.clone(),
            );
        });
        this
    }
}

/// Middleware: counts and times every request.
pub(crate) async fn observe<F: Future<Output = Response>>(
    metrics: &HttpMetrics,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let started = Instant::now();
    let method = known_method(request.method());
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let route = matched.unwrap_or("unmatched").to_owned();
    let trace = request.extensions().get::<RequestContext>().and_then(RequestContext::sampled_trace);
    let in_progress = InProgress::enter(&metrics.in_progress);
    let response = next(request).await;
    drop(in_progress);
    let labels = Labels { method, route, status: response.status().as_u16() };
    let elapsed = started.elapsed();
    let exemplar = trace.map(|trace_id| TraceLabel { trace_id });
    metrics.duration.get_or_create_owned(&labels).observe(elapsed.as_secs_f64(), exemplar, None);
    metrics.requests.get_or_create_owned(&labels).inc();
    tracing::debug!(elapsed_ms = elapsed.as_secs_f64() * 1000.0, status = labels.status, "request answered");
    response
}

/// Decrements on drop, so also when the client disconnects and the request is dropped.
struct InProgress(Gauge);

impl InProgress {
    fn enter(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}
