//! The reference's order cache: entries without expiry; an older version never replaces a newer one.
use std::sync::Arc;

use async_trait::async_trait;
use domain::{Order, OrderId};
use ports::Error;
use ports::orders::cache::OrderCache;

use crate::reference::state::Reference;

#[async_trait]
impl OrderCache for Reference {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        Ok(self.state.lock().cached.get(&id).cloned())
    }

    async fn put(&self, order: Arc<Order>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.cached.get(&order.id).is_none_or(|cached| cached.version <= order.version) {
            state.cached.insert(order.id, order);
        }
        Ok(())
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        self.state.lock().cached.remove(&id);
        Ok(())
    }
}
