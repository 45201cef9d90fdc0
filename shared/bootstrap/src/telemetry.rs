//! Logs on standard output, and spans to a collector, if one is configured. A tracer provider exists in any case, because trace
//! ids are stored with events and sent in responses even without a collector.

use std::{io::IsTerminal as _, time::Duration};

use opentelemetry::{
    Context, KeyValue, TraceId, global,
    trace::{Link, SpanKind, TracerProvider as _},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SamplingResult, SdkTracerProvider, ShouldSample},
};
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{
    config::{LogFormat, TelemetryArgs},
    error::StartError,
    http::ServiceInfo,
};

/// The filter of spans, independent of the log filter. It excludes the exporter's own HTTP calls, which would trace themselves.
const SPAN_FILTER: &str =
    "info,opentelemetry=off,opentelemetry_sdk=off,opentelemetry-otlp=off,reqwest=off,hyper=off,hyper_util=off";
/// The timeout of one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// The tracer provider; [`Telemetry::shutdown`] exports the last spans.
#[derive(Debug)]
#[must_use = "spans that are not yet sent are lost without `shutdown`"]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

/// Installs logs, traces and the W3C propagator for the whole process. A second call keeps the first
/// subscriber, so tests may call it freely.
///
/// # Errors
/// [`StartError::Configuration`] for a filter or an endpoint that cannot be used.
pub fn init(service: &ServiceInfo, args: &TelemetryArgs) -> Result<Telemetry, StartError> {
    let log_filter = EnvFilter::try_new(&args.log_filter)
        .map_err(|error| StartError::Configuration(format!("RUST_LOG is not usable: {error}")))?;
    let provider = provider(service, args)?;
    global::set_text_map_propagator(TraceContextPropagator::new());
    global::set_tracer_provider(provider.clone());
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(service.name))
        .with_filter(EnvFilter::new(SPAN_FILTER));
    let logs = log_layer(args.log_format).with_filter(log_filter);
    // Fails only when a subscriber is installed already.
    let _ = tracing_subscriber::registry().with(logs).with(spans).try_init();
    Ok(Telemetry { provider })
}

impl Telemetry {
    /// Exports the remaining spans, within `limit`. Call it last.
    pub async fn shutdown(self, limit: Duration) {
        let flush = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(limit));
        match tokio::time::timeout(limit, flush).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last spans could not be sent"),
            Ok(Err(error)) => tracing::warn!(%error, "the last spans could not be sent"),
            Err(_) => tracing::warn!(?limit, "the last spans could not be sent in time"),
        }
    }
}

fn provider(service: &ServiceInfo, args: &TelemetryArgs) -> Result<SdkTracerProvider, StartError> {
    let resource = Resource::builder()
        .with_service_name(service.name)
        .with_attributes([
            KeyValue::new("service.version", service.version),
            KeyValue::new("service.instance.id", uuid::Uuid::now_v7().to_string()),
        ])
        .build();
    let endpoint = args.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
    // Without a collector, record no spans.
    let ratio = if endpoint.is_some() { args.trace_sample_ratio } else { 0.0 };
    let builder = SdkTracerProvider::builder().with_resource(resource).with_sampler(Share(ratio));
    let Some(endpoint) = endpoint else {
        return Ok(builder.build());
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(traces_url(endpoint))
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| StartError::Configuration(format!("OTEL_EXPORTER_OTLP_ENDPOINT is not usable: {error}")))?;
    Ok(builder.with_batch_exporter(exporter).build())
}

/// Samples requests at random, regardless of the client's sampling flag and trace id, which a client may choose. All spans that a
/// request causes follow its decision.
#[derive(Clone, Debug)]
struct Share(f64);

impl ShouldSample for Share {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let parent = parent.filter(|_| *kind != SpanKind::Server);
        let chance = if rand::random_bool(self.0) { Sampler::AlwaysOn } else { Sampler::AlwaysOff };
        Sampler::ParentBased(Box::new(chance)).should_sample(parent, trace_id, name, kind, attributes, links)
    }
}

/// The environment variable has the base URL, but the exporter uses an endpoint set in code unchanged.
fn traces_url(endpoint: &str) -> String {
    let base = endpoint.trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

fn log_layer(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = tracing_subscriber::fmt::layer();
    match format {
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
        LogFormat::Text => layer.with_ansi(std::io::stdout().is_terminal()).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{
        Span as _, SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceState, Tracer as _,
    };

    use super::*;

    #[test]
    fn requests_are_sampled_here_and_their_effects_follow() {
        let sampled = |ratio: f64, kind: SpanKind, flags: TraceFlags| {
            let provider = SdkTracerProvider::builder().with_sampler(Share(ratio)).build();
            let tracer = provider.tracer("test");
            let (trace_id, span_id) = (TraceId::from_bytes([1; 16]), SpanId::from_bytes([1; 8]));
            let parent = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
            let parent = Context::new().with_remote_span_context(parent);
            let span = tracer.span_builder("span").with_kind(kind).start_with_context(&tracer, &parent);
            assert_eq!(span.span_context().trace_id(), trace_id);
            span.span_context().is_sampled()
        };
        let (yes, no) = (TraceFlags::SAMPLED, TraceFlags::default());
        assert!(!sampled(0.0, SpanKind::Server, yes) && sampled(1.0, SpanKind::Server, no));
        assert!(sampled(0.0, SpanKind::Consumer, yes) && !sampled(1.0, SpanKind::Consumer, no));
        // This trace id would always be sampled by a ratio of ids.
        let often = (0..100).filter(|_| sampled(0.5, SpanKind::Server, yes)).count();
        assert!((1..100).contains(&often), "{often}");
    }

    #[test]
    fn the_path_of_traces_is_appended_once() {
        assert_eq!(traces_url("http://tempo:4318"), "http://tempo:4318/v1/traces");
        assert_eq!(traces_url("http://tempo:4318/"), "http://tempo:4318/v1/traces");
        assert_eq!(traces_url("http://tempo:4318/v1/traces"), "http://tempo:4318/v1/traces");
    }
}
