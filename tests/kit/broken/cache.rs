//! An order cache with a flaw.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Subject};
use ports::Error;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, ListScope, OrderCache};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenCache {
    pub(crate) inner: Arc<dyn OrderCache>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl OrderCache for BrokenCache {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        self.inner.get(self.entry_id(id)).await
    }
    async fn put(&self, order: Arc<Order>, age: Duration) -> Result<(), Error> {
        let order = Arc::new(Order { id: self.entry_id(order.id), ..(*order).clone() });
        if self.flaw == Flaw::AcceptsOlderVersions {
            self.inner.evict(order.id).await?;
        }
        self.inner.put(order, age).await
    }
    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        if self.flaw == Flaw::NeverEvicts { Ok(()) } else { self.inner.evict(self.entry_id(id)).await }
    }
    async fn refuse_older(&self, id: OrderId, version: u64) -> Result<(), Error> {
        let id = self.entry_id(id);
        if self.flaw == Flaw::CachesOrdersReadBeforeUnknownCommits {
            self.inner.evict(id).await
        } else {
            self.inner.refuse_older(id, version).await
        }
    }
    async fn get_list(&self, key: &ListKey) -> Result<ListLookup, Error> {
        self.inner.get_list(&self.list_key(key)).await
    }
    async fn put_list(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: CachedList,
        age: Duration,
    ) -> Result<(), Error> {
        let key = self.list_key(key);
        let newest = self.inner.get_list(&key).await?.generation;
        let generation = if self.flaw == Flaw::CachesListsReadBeforeChanges { newest } else { generation };
        self.inner.put_list(&key, generation, list, age).await
    }
    async fn evict_lists(&self, owner: &Subject) -> Result<(), Error> {
        if self.flaw == Flaw::KeepsListsOfChangedOwners { Ok(()) } else { self.inner.evict_lists(owner).await }
    }
    async fn evict_all(&self) -> Result<(), Error> {
        if self.flaw == Flaw::KeepsEntriesOfLostVersions { Ok(()) } else { self.inner.evict_all().await }
    }
}

impl BrokenCache {
    fn list_key(&self, key: &ListKey) -> ListKey {
        let is_shared = self.flaw == Flaw::SharesListsBetweenOwners;
        ListKey { scope: if is_shared { ListScope::All } else { key.scope.clone() }, ..key.clone() }
    }

    fn entry_id(&self, id: OrderId) -> OrderId {
        if self.flaw == Flaw::SharesEntryBetweenOrders { OrderId::from_bytes([7; 16]) } else { id }
    }
}
