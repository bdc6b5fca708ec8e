//! A cache of orders. It may fail or evict at any time; while it holds a version it never returns an older one.
use std::sync::Arc;

use async_trait::async_trait;
use domain::{Order, OrderId};

use crate::error::Error;

/// Orders that were recently read or changed.
#[async_trait]
pub trait OrderCache: Send + Sync {
    /// Returns the order, if it is cached.
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error>;

    /// Caches an order unless a newer version of it is cached. The adapter's options set the time to live, with jitter.
    async fn put(&self, order: Arc<Order>) -> Result<(), Error>;

    /// Removes an order from the cache.
    async fn evict(&self, id: OrderId) -> Result<(), Error>;
}
