//! Logs on standard output and spans to a collector, if there is one. A tracer provider exists in any case,
//! because trace ids are stored with events and shown in answers even when nobody collects spans.

use std::{io::IsTerminal as _, time::Duration};

use opentelemetry::{KeyValue, global, trace::TracerProvider as _};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{
    config::{LogFormat, TelemetryArgs},
    error::StartError,
    http::ServiceInfo,
};

/// What becomes a span, whatever is logged. The exporter's own HTTP calls must not: it would trace itself.
const SPAN_FILTER: &str =
    "info,opentelemetry=off,opentelemetry_sdk=off,opentelemetry-otlp=off,reqwest=off,hyper=off,hyper_util=off";
/// How long one export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps spans flowing; [`Telemetry::shutdown`] sends the last ones.
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
    /// Sends the spans that are left, within `limit`. Call it last.
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
    // Nobody collects: no span is worth its time.
    let ratio = if endpoint.is_some() { args.trace_sample_ratio } else { 0.0 };
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
    let builder = SdkTracerProvider::builder().with_resource(resource).with_sampler(sampler);
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

/// The specification gives the base URL; the exporter takes an endpoint set in code as it is.
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
    use super::*;

    #[test]
    fn the_path_of_the_traces_is_appended_once() {
        assert_eq!(traces_url("http://tempo:4318"), "http://tempo:4318/v1/traces");
        assert_eq!(traces_url("http://tempo:4318/"), "http://tempo:4318/v1/traces");
        assert_eq!(traces_url("http://tempo:4318/v1/traces"), "http://tempo:4318/v1/traces");
    }
}
