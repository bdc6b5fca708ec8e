//! Ports: small traits for stores, brokers, caches and clocks, the data that crosses them, and their errors. No runtime, client or policy.
//! The documentation of each trait is its contract; the conformance suite in `tests/kit` checks every backend against it.
//!
//! Where a method says no more: it may fail with any [`Error`], and only [`Error::Unknown`] means that something may have changed. Cancellation:
//! a dropped call that only reads has no effect; a dropped call that writes may still take effect, also after the drop, as after
//! [`Error::Unknown`].
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
