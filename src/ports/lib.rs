//! Ports: small traits for stores, brokers, caches and clocks, the data that crosses them, and their errors. No runtime, client or policy.
//! The documentation of each trait is its contract; the conformance suite in `tests/kit` checks every backend against it.
#![warn(missing_docs)]

pub mod broker;
pub mod clock;
pub mod endpoint;
pub mod error;
pub mod event_headers;
pub mod inbox;
pub mod operators;
pub mod orders;
pub mod outbox;
pub mod partitions;
pub mod probe;
pub mod rate_limit;

pub use error::{Error, FailureType, FaultClass};
