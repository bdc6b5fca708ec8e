//! Cache and token buckets in this process's memory: what a service uses that has no Redis, whichever store it has.
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;

use crate::cache::Orders;
use crate::rate_limit::Buckets;

/// Implements [`ports::cache::OrderCache`] and [`ports::rate_limit::RateLimiter`]. Cheap to clone; all clones are one memory.
#[derive(Clone)]
pub struct Memory {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) orders: Orders,
    pub(crate) buckets: Buckets,
}

/// How much is remembered, and how long.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// How long a cached order is believed; up to a fifth is taken off, so that entries do not expire together. Over a store that others
    /// write too at most 5 s: so long may a read be behind.
    pub order_ttl: Duration,
    /// Most cached orders.
    pub orders_cached: usize,
    /// Most rate-limit buckets kept; the ones longest unused go first, and a forgotten bucket is a full one.
    pub buckets_max: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { order_ttl: Duration::from_secs(300), orders_cached: 8192, buckets_max: 65_536 }
    }
}

impl Memory {
    /// An empty memory.
    pub fn new(options: &MemoryOptions, clock: Arc<dyn Clock>) -> Self {
        let orders = Orders::new(options.orders_cached, options.order_ttl);
        let inner = Inner { clock, orders, buckets: Buckets::new(options.buckets_max) };
        Self { inner: Arc::new(inner) }
    }
}
