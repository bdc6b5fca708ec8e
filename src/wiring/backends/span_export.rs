//! Starts the export of spans to the configured collector.
use std::sync::Arc;
use std::time::Duration;

use endpoints::{CollectorEndpoint, CollectorOptions, RootCertificates};
use ports::clock::Rng;
use ports::partitions::InstanceId;
use secrecy::ExposeSecret;
use telemetry::Metrics;
use telemetry::traces::{self, CollectorReply, OtlpClient, SpanExporter, Tracer};

use super::super::handlers::certificates::root_certificates;
use super::super::start_error::StartError;
use crate::config::{Config, TracingSettings, collector_headers, traces_url};

/// The collector as the exporter calls it.
struct CollectorClient(CollectorEndpoint);

impl OtlpClient for CollectorClient {
    fn post(&self, body: &[u8], timeout: Duration) -> Result<CollectorReply, String> {
        self.0.post(body, timeout).map(|(status, body)| CollectorReply { status, body })
    }
}

/// Checks the file of root certificates, where spans are exported.
pub(in crate::wiring) fn check(config: &Config) -> Result<(), StartError> {
    config.tracing.endpoint.as_ref().map_or(Ok(()), |_| roots(&config.tracing).map(drop))
}

fn roots(settings: &TracingSettings) -> Result<Option<RootCertificates>, StartError> {
    settings.ca_file.as_deref().map(|file| root_certificates("tracing.ca_file", file)).transpose()
}

/// The tracer of the process, with its exporter. Without an endpoint it is off, and nothing is started.
///
/// # Errors
/// The file of root certificates is unusable, or no thread can be started; a configuration that was loaded has no other error.
pub(in crate::wiring) fn start(
    config: &Config,
    instance: &InstanceId,
    rng: &Arc<dyn Rng>,
    metrics: &Metrics,
) -> Result<(Tracer, Option<SpanExporter>), StartError> {
    let settings = &config.tracing;
    let Some(endpoint) = &settings.endpoint else { return Ok((Tracer::default(), None)) };
    let refused = |key: &'static str| move |form: &str| StartError::Config(format!("{key}: must be {form}"));
    let url = traces_url(endpoint).map_err(refused("tracing.endpoint"))?;
    let headers = collector_headers(settings.headers.expose_secret()).map_err(refused("tracing.headers"))?;
    let roots = roots(settings)?;
    let client = CollectorClient(CollectorEndpoint::new(CollectorOptions { url, headers, roots }));
    let options = traces::Options {
        sample_ratio: settings.sample_ratio,
        queue_max: settings.queue,
        timeout: settings.timeout,
        resource: vec![
            ("service.name", "posthaste".to_owned()),
            ("service.version", telemetry::VERSION.to_owned()),
            ("service.instance.id", instance.to_string()),
            ("posthaste.region", config.region.id.clone()),
        ],
    };
    let rng = Arc::clone(rng);
    let started = Tracer::exporting(options, client, move || rng.next_u64(), metrics);
    let (tracer, exporter) =
        started.map_err(|error| StartError::Config(format!("tracing: no thread can be started: {error}")))?;
    Ok((tracer, Some(exporter)))
}
