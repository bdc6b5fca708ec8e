//! `OrderCache` in memory. An evicted order leaves its version behind: a slow reader must not put an older version back.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Timestamp};
use ports::Error;
use ports::cache::OrderCache;

use crate::bounded::BoundedMap;
use crate::memory::Memory;

/// Orders by id.
pub(crate) struct CachedOrders {
    entries: BoundedMap<OrderId, CachedOrder>,
    ttl: Duration,
}

struct CachedOrder {
    version: u64,
    /// `None` once evicted: then only the version is kept.
    order: Option<Arc<Order>>,
    until: Timestamp,
}

impl CachedOrders {
    pub(crate) fn new(capacity: usize, ttl: Duration) -> Self {
        Self { entries: BoundedMap::new(capacity), ttl }
    }

    fn get(&self, id: OrderId, now: Timestamp) -> Option<Arc<Order>> {
        self.entries.read(&id, |cached| cached.order.clone().filter(|_| cached.until > now))
    }

    fn put(&self, order: Arc<Order>, now: Timestamp) {
        let (version, until) = (order.version, self.expiry(order.id, now));
        self.entries.update(order.id, |cached| {
            if cached.as_ref().is_none_or(|cached| cached.version <= version) {
                *cached = Some(CachedOrder { version, order: Some(order), until });
            }
        });
    }

    fn evict(&self, id: OrderId) {
        self.entries.change(&id, |cached| {
            if let Some(cached) = cached {
                cached.order = None;
            }
        });
    }

    /// Up to a fifth before the full time, by the id's own random bits: orders that are cached together do not expire together.
    fn expiry(&self, id: OrderId, now: Timestamp) -> Timestamp {
        let jitter = f64::from(id.bytes()[14]) / 255.0 * 0.2;
        now.after(self.ttl.mul_f64(1.0 - jitter))
    }
}

#[async_trait]
impl OrderCache for Memory {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        Ok(self.inner.orders.get(id, self.inner.clock.now()))
    }

    async fn put(&self, order: Arc<Order>) -> Result<(), Error> {
        self.inner.orders.put(order, self.inner.clock.now());
        Ok(())
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        self.inner.orders.evict(id);
        Ok(())
    }
}
