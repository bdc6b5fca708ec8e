//! Ports in this process's memory: order cache, token buckets, idempotency keys and the system clock, for deployments without Redis,
//! whichever store they have. Everything here may be lost at any time; the store has the durable counterpart.
#![warn(missing_docs)]

mod bounded;
mod clock;
mod idempotency;
mod list_cache;
mod memory;
mod order_cache;
mod rate_limit;

pub use clock::SystemClock;
pub use memory::{Memory, Options};
