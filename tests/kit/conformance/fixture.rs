//! Fixtures of the cases: a backend with a factory, a worker of one partition, and helpers for the broker's cases.

pub(crate) mod backend;
pub(crate) mod broker;
pub(crate) mod worker;
