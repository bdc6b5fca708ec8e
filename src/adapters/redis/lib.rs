//! Idempotency keys, the order cache and token buckets on a Redis that several instances share. Nothing in it is the only copy: the store
//! holds the durable marks and the orders, so every port here may fail, and its callers go on without it.
//!
//! One [`Redis`] is a pool of connections and one small task, the keeper. A call that cannot reach the server says so once; from then on
//! every call fails at once, and the keeper alone looks, until the server takes a write again. So an outage costs one time-out and not
//! one for each request.
//!
//! Redis 6 or later: scripts read the time and then write.
#![warn(missing_docs)]

mod cache;
mod debts;
mod error;
mod idempotency;
mod keeper;
mod link;
mod mark;
mod names;
mod open;
mod open_error;
mod options;
mod order_text;
mod policies;
mod probe;
mod rate_limit;
mod scripts;
mod store;
mod trust;
mod window;

pub use open::Redis;
pub use open_error::OpenError;
pub use options::Options;
pub use store::{Durability, Lost, RedisStore, StoreOpenError, StoreOptions, StoreProbe};
