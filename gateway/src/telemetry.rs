//! Spans for an OpenTelemetry collector: one for each connection and each exchange, sent in batches beside the serving.
//!
//! They say who, where to, what was decided and how long each phase took; never a value, a header, a path or a query. Where nobody
//! listens none is built. A collector that is down costs spans, nothing else: the queue is bounded, and what does not fit is dropped.
mod collector;
pub mod spans;

use collector::Collector;
use http::Uri;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Sampler, SdkTracerProvider};
use rustls::RootCertStore;
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// What spans are called the service of, unless `OTEL_SERVICE_NAME` says otherwise.
const SERVICE: &str = "sallyport-gateway";
/// Where spans are taken below the collector's address (OTLP specification, "OTLP/HTTP Request").
const TRACES: &str = "v1/traces";

/// Where spans go, and how many.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    /// Base address of the collector, `http` or `https`; `/v1/traces` is added.
    pub collector: Uri,
    /// The part of all connections that is sampled, 0 to 1; none leaves it to `OTEL_TRACES_SAMPLER`.
    pub sample: Option<f64>,
}

impl Export {
    /// Reads the collector's address.
    pub fn address(text: &str) -> Result<Uri, String> {
        let uri: Uri = text
            .parse()
            .map_err(|_| "no address like `http://HOST:4318`".to_owned())?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(_)) if uri.query().is_none() => Ok(uri),
            _ => Err("no address like `http://HOST:4318`".to_owned()),
        }
    }

    /// Reads the sampled part.
    pub fn part(text: &str) -> Result<f64, String> {
        let part = text.parse::<f64>().ok();
        part.filter(|part| (0.0..=1.0).contains(part))
            .ok_or_else(|| "no number from 0 to 1".to_owned())
    }
}

/// Why no spans can be exported. The operator's to mend.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be exported: {0}")]
pub struct TelemetryError(String);

/// An exporter at work.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
    limit: Duration,
}

impl Telemetry {
    /// Begins to export on a thread of its own, whose requests run on `runtime`. An `https` collector must be vouched for by one of
    /// `roots`; one request may take as long as `limit`.
    pub fn start(
        export: &Export,
        roots: RootCertStore,
        limit: Duration,
        runtime: Handle,
    ) -> Result<Self, TelemetryError> {
        let collector = Collector::new(&export.collector, roots, limit, runtime).map_err(TelemetryError)?;
        let base = export.collector.to_string();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_endpoint(format!("{}/{TRACES}", base.trim_end_matches('/')))
            .with_timeout(limit)
            .build()
            .map_err(|error| TelemetryError(error.to_string()))?;
        let mut provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).build())
            .with_resource(resource());
        if let Some(part) = export.sample {
            let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(part)));
            provider = provider.with_sampler(sampler);
        }
        Ok(Self {
            provider: provider.build(),
            limit,
        })
    }

    /// What hands the gateway's own spans, and nothing else that is logged, to the exporter.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(spans::is_one))
    }

    /// Sends what waits, for as long as one request may take. Blocks; not to be called on the runtime.
    pub fn finish(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(self.limit) {
            tracing::warn!(%error, "the last spans may be missing");
        }
    }
}

/// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` go first.
fn resource() -> Resource {
    let found = Resource::builder().build();
    let named = found
        .get(&opentelemetry::Key::from_static_str("service.name"))
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let builder = Resource::builder().with_attribute(opentelemetry::KeyValue::new(
        "service.version",
        env!("CARGO_PKG_VERSION"),
    ));
    match named {
        true => builder.build(),
        false => builder.with_service_name(SERVICE).build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_a_scheme_and_a_host() {
        for right in ["http://collector.test:4318", "https://collector.test/otlp"] {
            assert_eq!(
                Export::address(right).unwrap().to_string().trim_end_matches('/'),
                right
            );
        }
        for wrong in [
            "collector.test:4318",
            "grpc://collector.test",
            "http://",
            "/v1",
            "http://a.test/?k=v",
        ] {
            assert!(Export::address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_is_no_more_than_the_whole() {
        assert_eq!(Export::part("0.25"), Ok(0.25));
        for wrong in ["1.5", "-0.1", "all", "NaN"] {
            assert!(Export::part(wrong).is_err(), "{wrong}");
        }
    }
}
