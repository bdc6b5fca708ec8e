//! Redis in two roles. [`Redis`] holds what instances that use another store share: idempotency keys, the order cache and token buckets. It
//! holds the only copy of nothing (the store keeps the durable records and the orders), so every one of its ports may fail and the callers
//! continue without it. [`RedisStore`] is a store that keeps its data in Redis only.
//!
//! One [`Redis`] is one connection, which all calls share, and one maintenance task. The first call that cannot reach the server marks it
//! unavailable. From then on every call fails at once, and only the maintenance task tries the server, until it accepts a write again. So an
//! outage costs one time-out and not one for each request.
//!
//! Requires Redis 6 or later, because scripts read the time before they write.
#![warn(missing_docs)]

mod cache;
mod connection;
mod idempotency;
mod inbox;
mod leases;
mod operators;
mod orders;
mod outbox;
mod rate_limit;
mod store;
mod wake;

pub use connection::client::Redis;
pub use connection::open_error::RedisOpenError;
pub use connection::options::Options;
pub use store::client::RedisStore;
pub use store::open_error::StoreOpenError;
pub use store::options::{Durability, StoreOptions};
pub use store::probe::RedisStoreProbe;
pub use store::throwaway::delete_throwaway_keys;
