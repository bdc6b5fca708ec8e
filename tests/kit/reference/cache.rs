//! The reference's order cache: entries without expiry; an older version never replaces a newer one.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Subject};
use ports::Error;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, ListScope, OrderCache};

use crate::reference::state::Reference;

#[async_trait]
impl OrderCache for Reference {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        Ok(self.state.lock().cached.get(&id).cloned())
    }

    async fn put(&self, order: Arc<Order>, _age: Duration) -> Result<(), Error> {
        let mut state = self.state.lock();
        let is_refused = state.refused_below.get(&order.id).is_some_and(|version| order.version < *version);
        if !is_refused && state.cached.get(&order.id).is_none_or(|cached| cached.version <= order.version) {
            state.cached.insert(order.id, order);
        }
        Ok(())
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        self.state.lock().cached.remove(&id);
        Ok(())
    }

    async fn refuse_older(&self, id: OrderId, version: u64) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.cached.retain(|cached, order| *cached != id || order.version >= version);
        let refused = state.refused_below.entry(id).or_default();
        *refused = version.max(*refused);
        Ok(())
    }

    async fn get_list(&self, key: &ListKey) -> Result<ListLookup, Error> {
        let mut state = self.state.lock();
        // Every scope that was looked up has a generation that `evict_all` ends.
        let generation = *state.list_generations.entry(key.scope.clone()).or_default();
        let found = state.cached_lists.get(key).filter(|(of, _)| *of == generation).map(|(_, list)| list.clone());
        Ok(ListLookup { generation: ListGeneration(generation), found })
    }

    async fn put_list(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: CachedList,
        _age: Duration,
    ) -> Result<(), Error> {
        self.state.lock().cached_lists.insert(key.clone(), (generation.0, list));
        Ok(())
    }

    async fn evict_lists(&self, owner: &Subject) -> Result<(), Error> {
        let mut state = self.state.lock();
        for scope in [ListScope::Owner(owner.clone()), ListScope::All] {
            *state.list_generations.entry(scope).or_default() += 1;
        }
        Ok(())
    }

    async fn evict_all(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.cached.clear();
        state.refused_below.clear();
        state.list_generations.values_mut().for_each(|generation| *generation += 1);
        Ok(())
    }
}
