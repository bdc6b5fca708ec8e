//! `OrderCache` in memory. An evicted order leaves its version behind: a slow reader must not put an older version back.
use std::sync::Arc;
use std::time::Duration;

use domain::{Order, OrderId, Timestamp};

use crate::bounded::BoundedMap;

/// Cached orders by id; at capacity the map evicts entries.
pub(crate) struct CachedOrders {
    entries: BoundedMap<OrderId, CachedOrder>,
    ttl: Duration,
    jitter: f64,
}

struct CachedOrder {
    version: u64,
    /// `None` once evicted: then only the version is kept.
    order: Option<Arc<Order>>,
    until: Timestamp,
}

impl CachedOrders {
    pub(crate) fn new(capacity: usize, ttl: Duration, jitter: f64) -> Self {
        Self { entries: BoundedMap::new(capacity), ttl, jitter }
    }

    pub(crate) fn get(&self, id: OrderId, now: Timestamp) -> Option<Arc<Order>> {
        self.entries.read(&id, |cached| cached.order.clone().filter(|_| cached.until > now))
    }

    pub(crate) fn put(&self, order: Arc<Order>, now: Timestamp) {
        let (version, until) = (order.version, self.expiry(order.id, now));
        self.entries.update(order.id, |cached| {
            if cached.as_ref().is_none_or(|cached| cached.version <= version) {
                *cached = Some(CachedOrder { version, order: Some(order), until });
            }
        });
    }

    pub(crate) fn evict(&self, id: OrderId) {
        self.entries.change(&id, |cached| {
            if let Some(cached) = cached {
                cached.order = None;
            }
        });
    }

    /// Spread by the id's own random bits: orders that are cached together do not expire together.
    fn expiry(&self, id: OrderId, now: Timestamp) -> Timestamp {
        let spread = f64::from(id.bytes()[14]) / 255.0;
        now.after(self.ttl.mul_f64(1.0 - self.jitter * spread))
    }
}
