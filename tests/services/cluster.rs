//! Several instances of the service on one backend, and the metrics of each.
pub mod fleet;
pub mod metrics;
