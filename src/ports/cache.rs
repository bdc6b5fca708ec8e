//! A cache of orders. It may fail or forget at any time; while it remembers a version it never shows an older one.
use std::sync::Arc;

use async_trait::async_trait;
use domain::{Order, OrderId};

use crate::error::Error;

/// Orders read a moment ago.
#[async_trait]
pub trait OrderCache: Send + Sync {
    /// The order, if it is remembered.
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error>;

    /// Remembers an order, unless a newer version of it is remembered already. How long is the adapter's own option, with jitter.
    async fn put(&self, order: Arc<Order>) -> Result<(), Error>;

    /// Forgets an order.
    async fn evict(&self, id: OrderId) -> Result<(), Error>;
}
