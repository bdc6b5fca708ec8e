//! Decisions as pure functions and small state machines, each with its table of tests.
pub mod backpressure;
pub mod conflict;
pub mod failover;
pub mod partition;
pub mod retry;
pub mod shedding;
