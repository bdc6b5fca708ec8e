//! The metrics of the service: their catalogue, their instruments, and the two formats in which they are read.

mod actuator;
mod buckets;
mod catalogue;
mod definition;
mod instrument;
mod known_values;
mod labels;
mod registry;

pub use actuator::{ActuatorMetric, ActuatorTag, Measurement};
pub use catalogue::CATALOGUE;
pub use definition::{MetricDefinition, MetricKind, MetricUnit};
pub use instrument::{DurationDistribution, Family, Gauge, Instrument, IntCounter, IntGauge, SizeDistribution, Timer};
pub use known_values::KnownValues;
pub use labels::LABELS;
pub use registry::{CONTENT_TYPE, Metrics};
