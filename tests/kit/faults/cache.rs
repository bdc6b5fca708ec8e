//! The cache of orders under a fault script.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Subject};
use ports::Error;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, OrderCache};

use crate::faults::script::{Call, FaultScript};

/// A cache with injected faults of `evict_all`.
pub struct FaultyCache {
    inner: Arc<dyn OrderCache>,
    script: FaultScript,
}

impl FaultyCache {
    /// Wraps a port with a fault script.
    pub fn wrap(inner: Arc<dyn OrderCache>, script: FaultScript) -> Self {
        Self { inner, script }
    }
}

#[async_trait]
impl OrderCache for FaultyCache {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        self.inner.get(id).await
    }
    async fn put(&self, order: Arc<Order>, age: Duration) -> Result<(), Error> {
        self.inner.put(order, age).await
    }
    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        self.inner.evict(id).await
    }
    async fn refuse_older(&self, id: OrderId, version: u64) -> Result<(), Error> {
        self.inner.refuse_older(id, version).await
    }
    async fn get_list(&self, key: &ListKey) -> Result<ListLookup, Error> {
        self.inner.get_list(key).await
    }
    async fn put_list(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: CachedList,
        age: Duration,
    ) -> Result<(), Error> {
        self.inner.put_list(key, generation, list, age).await
    }
    async fn evict_lists(&self, owner: &Subject) -> Result<(), Error> {
        self.inner.evict_lists(owner).await
    }
    async fn evict_all(&self) -> Result<(), Error> {
        self.script.apply(Call::EvictAll, self.inner.evict_all()).await
    }
}
