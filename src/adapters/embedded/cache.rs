//! `OrderCache` in memory. An order that was evicted leaves its version behind for a while: a slow reader must not put an older one back.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Timestamp};
use parking_lot::Mutex;
use ports::Error;
use ports::cache::OrderCache;

use crate::generations::Generations;
use crate::memory::Memory;
use crate::open::Embedded;

/// Locks, so that workers seldom meet.
const SHARDS: usize = 16;

/// Orders by id.
pub(crate) struct Orders {
    shards: Vec<Mutex<Generations<OrderId, Remembered>>>,
    ttl: Duration,
}

struct Remembered {
    version: u64,
    /// None once evicted: then only the version is remembered.
    order: Option<Arc<Order>>,
    until: Timestamp,
}

impl Orders {
    pub(crate) fn new(capacity: usize, ttl: Duration) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Generations::new(capacity.div_ceil(SHARDS)))).collect();
        Self { shards, ttl }
    }

    fn shard(&self, id: OrderId) -> &Mutex<Generations<OrderId, Remembered>> {
        // The last byte of a v7 id is random.
        &self.shards[usize::from(id.bytes()[15]) % SHARDS]
    }

    fn get(&self, id: OrderId, now: Timestamp) -> Option<Arc<Order>> {
        let mut shard = self.shard(id).lock();
        shard.get_mut(&id).filter(|known| known.until > now).and_then(|known| known.order.clone())
    }

    fn put(&self, order: Arc<Order>, now: Timestamp) {
        let (id, version, until) = (order.id, order.version, self.until(order.id, now));
        let mut shard = self.shard(id).lock();
        if shard.get_mut(&id).is_none_or(|known| known.version <= version) {
            shard.put(id, Remembered { version, order: Some(order), until });
        }
    }

    fn evict(&self, id: OrderId) {
        if let Some(known) = self.shard(id).lock().get_mut(&id) {
            known.order = None;
        }
    }

    /// Up to a fifth earlier than the ttl says, by the id's own random bits: a burst does not expire as a burst.
    fn until(&self, id: OrderId, now: Timestamp) -> Timestamp {
        let jitter = f64::from(id.bytes()[14]) / 255.0 * 0.2;
        now.after(self.ttl.mul_f64(1.0 - jitter))
    }
}

#[async_trait]
impl OrderCache for Embedded {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        self.inner.memory.get(id).await
    }

    async fn put(&self, order: Arc<Order>) -> Result<(), Error> {
        self.inner.memory.put(order).await
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        self.inner.memory.evict(id).await
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
