//! Metrics and log output.
//!
//! Each metric's name, labels, unit and help text are declared once, in [`CATALOGUE`]. Crates receive an `Arc<Metrics>` and write to its fields. They log through `tracing`;
//! [`logging::init`] installs the subscriber. This crate depends on no other crate of the workspace.

pub mod logging;
mod metrics;

pub use metrics::{
    ActuatorMetric, ActuatorTag, CATALOGUE, CONTENT_TYPE, DurationDistribution, Family, Gauge, Instrument, IntCounter,
    IntGauge, Measurement, MetricDefinition, MetricKind, MetricUnit, Metrics, SizeDistribution, Timer,
};
