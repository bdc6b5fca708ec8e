//! An order cache with a flaw.
use std::sync::Arc;

use async_trait::async_trait;
use domain::{Order, OrderId};
use ports::Error;
use ports::orders::cache::OrderCache;

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenCache {
    pub(crate) real: Arc<dyn OrderCache>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl OrderCache for BrokenCache {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        self.real.get(self.entry_id(id)).await
    }
    async fn put(&self, order: Arc<Order>) -> Result<(), Error> {
        let order = Arc::new(Order { id: self.entry_id(order.id), ..(*order).clone() });
        if self.flaw == Flaw::AcceptsOlderVersions {
            self.real.evict(order.id).await?;
        }
        self.real.put(order).await
    }
    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        if self.flaw == Flaw::NeverEvicts { Ok(()) } else { self.real.evict(self.entry_id(id)).await }
    }
}

impl BrokenCache {
    fn entry_id(&self, id: OrderId) -> OrderId {
        if self.flaw == Flaw::SharesEntryBetweenOrders { OrderId::from_bytes([7; 16]) } else { id }
    }
}
