//! What the service says about itself: every metric's name, labels, unit and help, once, and the log's two formats.
//!
//! Knows no room and no order. Rooms receive an `Arc<Metrics>` and write to its fields; they log through `tracing`
//! alone, and [`logging::init`] decides what becomes of it.

mod buckets;
mod capture;
mod catalogue;
mod entry;
mod fact;
mod filter;
mod instrument;
mod json_line;
mod layer;
pub mod logging;
mod metrics;
mod output;
mod panics;
mod pretty_line;
mod reading;

pub use catalogue::CATALOGUE;
pub use entry::{Entry, Kind, Unit};
pub use instrument::{Durations, Family, Gauge, Instrument, IntCounter, IntGauge, Sizes, Timer};
pub use metrics::{CONTENT_TYPE, Metrics};
pub use reading::{Measurement, Reading, Tag};
