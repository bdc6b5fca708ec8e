//! What we ask of the world: small traits, the data that crosses them, their errors. No runtime, no client, no policy.
//! The words of each trait are its contract: `tests/kit` holds every backend to them.
#![warn(missing_docs)]

pub mod broker;
pub mod cache;
pub mod clock;
pub mod error;
pub mod idempotency;
pub mod inbox;
pub mod operators;
pub mod orders;
pub mod outbox;
pub mod partitions;
pub mod probe;
pub mod rate_limit;
pub mod redrives;
pub mod source;
pub mod topics;
pub mod wake;

pub use error::{Error, FailureType, Fault};
