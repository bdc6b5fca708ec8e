//! The handle that implements the ports, and its limits.
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;

use crate::idempotency::IdempotencyKeys;
use crate::order_cache::CachedOrders;
use crate::rate_limit::TokenBuckets;

/// Implements [`ports::cache::OrderCache`], [`ports::rate_limit::RateLimiter`] and [`ports::idempotency::Idempotency`]. Cheap to clone; all
/// clones share one memory.
#[derive(Clone)]
pub struct Memory {
    pub(crate) inner: Arc<SharedMemory>,
}

/// State behind every clone of a [`Memory`].
pub(crate) struct SharedMemory {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) orders: CachedOrders,
    pub(crate) buckets: TokenBuckets,
    pub(crate) keys: IdempotencyKeys,
}

/// Limits of the memory.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for which a cached order is served; up to a fifth is taken off, so that entries do not expire together. Over a store that other
    /// instances write too at most 5 s: a read may lag behind by this much.
    pub order_ttl: Duration,
    /// Largest number of cached orders.
    pub orders_max: usize,
    /// Largest number of rate-limit buckets; the least recently used is dropped first, and a dropped bucket is a full one.
    pub buckets_max: usize,
    /// Largest number of idempotency keys; a dropped one is still marked in the store.
    pub keys_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { order_ttl: Duration::from_secs(300), orders_max: 8192, buckets_max: 65_536, keys_max: 16_384 }
    }
}

impl Memory {
    /// An empty memory that measures time by `clock`.
    pub fn new(options: &Options, clock: Arc<dyn Clock>) -> Self {
        let inner = SharedMemory {
            clock,
            orders: CachedOrders::new(options.orders_max, options.order_ttl),
            buckets: TokenBuckets::new(options.buckets_max),
            keys: IdempotencyKeys::new(options.keys_max),
        };
        Self { inner: Arc::new(inner) }
    }
}
