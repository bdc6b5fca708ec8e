//! Traces: spans of sampled requests, and their export to an OpenTelemetry collector by OTLP over HTTP in JSON.
//!
//! A [`Tracer`] that is off starts no thread and allocates nothing. Context passes from component to component as data, a
//! [`SpanContext`]; no span is found by the thread or the task that runs.

mod active_span;
mod collector_call;
mod context;
mod exporter;
mod options;
mod otlp;
mod queue;
mod recorder;
mod span_data;
mod tracer;

pub use active_span::ActiveSpan;
pub use collector_call::{CollectorReply, OtlpClient};
pub use context::SpanContext;
pub use exporter::SpanExporter;
pub use options::Options;
pub use span_data::{AttributeValue, SpanKind};
pub use tracer::Tracer;
