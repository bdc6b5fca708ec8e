//! Metrics, log output, traces, and the documents generated from the catalogues.
//!
//! Each metric's name, labels, unit and help text are declared once, in [`CATALOGUE`]; each log event's name, levels and
//! meaning once, in [`LOG_EVENTS`]. Crates receive an `Arc<Metrics>` and write to its fields. They log through `tracing`;
//! [`logging::init`] installs the subscriber. This crate depends on no other crate of the workspace.

pub mod documents;
mod log_events;
pub mod logging;
mod metrics;
pub mod traces;
mod version;

pub use log_events::{LOG_EVENTS, LogEvent, LogEventGroup};
pub use metrics::{
    ActuatorMetric, ActuatorTag, CATALOGUE, CONTENT_TYPE, DurationDistribution, Family, Gauge, Instrument, IntCounter,
    IntGauge, KnownValues, LABELS, Measurement, MetricDefinition, MetricKind, MetricUnit, Metrics, SizeDistribution,
    Timer,
};
pub use version::{COMMIT, UNKNOWN_COMMIT, VERSION};
