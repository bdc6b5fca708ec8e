//! HTTP clients that generate load, and the statistics of their measurements.
pub(crate) mod client;
pub(crate) mod figures;
pub(crate) mod generator;
pub(crate) mod warm_up;
