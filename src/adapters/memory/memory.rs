//! The handle that implements the ports, and its limits.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Subject};
use ports::Error;
use ports::clock::Clock;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, OrderCache};
use ports::orders::idempotency::{BeginOutcome, Idempotency};
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};

use crate::idempotency::{IdempotencyKeys, KeyState, scoped};
use crate::list_cache::CachedLists;
use crate::order_cache::CachedOrders;
use crate::rate_limit::TokenBuckets;

/// Implements [`ports::orders::cache::OrderCache`], [`ports::rate_limit::RateLimiter`] and [`ports::orders::idempotency::Idempotency`]. Cheap to clone; all
/// clones share one memory.
#[derive(Clone)]
pub struct Memory {
    pub(crate) inner: Arc<SharedMemory>,
}

/// State behind every clone of a [`Memory`].
pub(crate) struct SharedMemory {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) orders: CachedOrders,
    pub(crate) lists: CachedLists,
    pub(crate) buckets: TokenBuckets,
    pub(crate) keys: IdempotencyKeys,
}

/// Sizes and times to live of the in-process cache, keys and buckets.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for which a cached order is served, from before it was read. At most 5 s with a store that other instances write too:
    /// this is how old a cached order may then be.
    pub order_ttl: Duration,
    /// Time for which a cached list is served, with the same limit.
    pub list_ttl: Duration,
    /// Largest share of a time to live that is subtracted, so that entries do not expire together.
    pub jitter: f64,
    /// Largest number of cached orders, each of at most 16 KiB: larger ones are not cached.
    pub orders_max: usize,
    /// Limit of the size of all cached lists, in bytes.
    pub lists_bytes_max: u64,
    /// Largest number of rate-limit buckets; the least recently used is dropped first, and a dropped bucket is a full one.
    pub buckets_max: usize,
    /// Largest number of idempotency keys; the store still has the record of a dropped one.
    pub keys_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order_ttl: Duration::from_secs(300),
            list_ttl: Duration::from_secs(60),
            jitter: 0.2,
            orders_max: 8192,
            lists_bytes_max: 16 * 1024 * 1024,
            buckets_max: 65_536,
            keys_max: 16_384,
        }
    }
}

impl Memory {
    /// An empty memory that measures time by `clock`.
    pub fn new(options: &Options, clock: Arc<dyn Clock>) -> Self {
        let inner = SharedMemory {
            clock,
            orders: CachedOrders::new(options.orders_max, options.order_ttl, options.jitter),
            lists: CachedLists::new(options.lists_bytes_max, options.orders_max, options.list_ttl, options.jitter),
            buckets: TokenBuckets::new(options.buckets_max),
            keys: IdempotencyKeys::new(options.keys_max),
        };
        Self { inner: Arc::new(inner) }
    }
}

#[async_trait]
impl OrderCache for Memory {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        Ok(self.inner.orders.get(id, self.inner.clock.now()))
    }

    async fn put(&self, order: Arc<Order>, age: Duration) -> Result<(), Error> {
        self.inner.orders.put(order, age, self.inner.clock.now());
        Ok(())
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        self.inner.orders.evict(id);
        Ok(())
    }

    async fn refuse_older(&self, id: OrderId, version: u64) -> Result<(), Error> {
        self.inner.orders.refuse_older(id, version, self.inner.clock.now());
        Ok(())
    }

    async fn get_list(&self, key: &ListKey) -> Result<ListLookup, Error> {
        Ok(self.inner.lists.get(key, self.inner.clock.now()))
    }

    async fn put_list(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: CachedList,
        age: Duration,
    ) -> Result<(), Error> {
        self.inner.lists.put(key, generation, list, age, self.inner.clock.now());
        Ok(())
    }

    async fn evict_lists(&self, owner: &Subject) -> Result<(), Error> {
        self.inner.lists.evict(owner);
        Ok(())
    }

    async fn evict_all(&self) -> Result<(), Error> {
        self.inner.orders.clear();
        self.inner.lists.clear();
        Ok(())
    }
}

#[async_trait]
impl RateLimiter for Memory {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        Ok(self.inner.buckets.take(bucket, policy, throttle, self.inner.clock.now()))
    }
}

#[async_trait]
impl Idempotency for Memory {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        _fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        Ok(self.inner.keys.begin(scoped(subject, key), self.inner.clock.now(), lock))
    }

    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        let expires_at = self.inner.clock.now().plus(keep);
        let completed = KeyState::Completed { order_id, fingerprint: *fingerprint, expires_at };
        self.inner.keys.complete(scoped(subject, key), completed);
        Ok(())
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        self.inner.keys.abandon(&scoped(subject, key));
        Ok(())
    }
}
