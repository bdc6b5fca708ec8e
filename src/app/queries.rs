//! Reading orders: cache first, the store behind it; an order that is not the viewer's is not there.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use domain::{Order, OrderId, Status};
use ports::cache::OrderCache;
use ports::orders::{Filter, From, OrderStore};

use crate::dispatch::Viewer;
use crate::error::QueryError;

/// Largest page.
pub const PAGE_MAX: u32 = 500;

/// What the cache did, for the metrics that `api` keeps.
#[derive(Default)]
pub struct CacheTally {
    /// Found.
    pub hits: AtomicU64,
    /// Not found.
    pub misses: AtomicU64,
    /// Failed; the store answered instead.
    pub errors: AtomicU64,
}

/// The read side.
pub struct Queries {
    orders: Arc<dyn OrderStore>,
    cache: Arc<dyn OrderCache>,
    list_max_rows: u32,
    /// What the cache did so far.
    pub tally: CacheTally,
}

/// A numbered page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Newest first.
    pub orders: Vec<Order>,
    /// Which page, from 0.
    pub page: u64,
    /// Most orders of a page.
    pub size: u32,
    /// Orders on all pages.
    pub total: u64,
}

/// A keyset page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyset {
    /// Newest first.
    pub orders: Vec<Order>,
    /// Most orders of a page.
    pub size: u32,
    /// Orders on all pages.
    pub total: u64,
    /// The id after which the next page begins, if there is one.
    pub next: Option<OrderId>,
}

impl Queries {
    /// Queries over these ports; `list_max_rows` bounds the bare list.
    pub fn new(orders: Arc<dyn OrderStore>, cache: Arc<dyn OrderCache>, list_max_rows: u32) -> Self {
        Self { orders, cache, list_max_rows, tally: CacheTally::default() }
    }

    /// One order.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] also for an order of someone else.
    pub async fn find(&self, id: OrderId, viewer: &Viewer) -> Result<Arc<Order>, QueryError> {
        let order = match self.cached(id).await {
            Some(order) => order,
            None => self.load(id).await?,
        };
        if viewer.sees(&order) { Ok(order) } else { Err(QueryError::NotFound) }
    }

    async fn cached(&self, id: OrderId) -> Option<Arc<Order>> {
        let counter = match self.cache.get(id).await {
            Ok(Some(order)) => {
                self.tally.hits.fetch_add(1, Relaxed);
                return Some(order);
            }
            Ok(None) => &self.tally.misses,
            // A cache that fails costs time, not answers.
            Err(_) => &self.tally.errors,
        };
        counter.fetch_add(1, Relaxed);
        None
    }

    async fn load(&self, id: OrderId) -> Result<Arc<Order>, QueryError> {
        let order = Arc::new(self.orders.find(id).await?.ok_or(QueryError::NotFound)?);
        if self.cache.put(Arc::clone(&order)).await.is_err() {
            self.tally.errors.fetch_add(1, Relaxed);
        }
        Ok(order)
    }

    /// The newest orders, bounded.
    pub async fn list(&self, viewer: &Viewer, status: Option<Status>) -> Result<Vec<Order>, QueryError> {
        Ok(self.orders.list(&filter(viewer, status), From::Offset(0), self.list_max_rows).await?)
    }

    /// Page `page` of pages of `size`, clamped to 1…500.
    pub async fn page(
        &self,
        viewer: &Viewer,
        status: Option<Status>,
        page: u64,
        size: u32,
    ) -> Result<Numbered, QueryError> {
        let filter = filter(viewer, status);
        let size = size.clamp(1, PAGE_MAX);
        let total = self.orders.count(&filter).await?;
        let offset = page.saturating_mul(u64::from(size));
        let orders =
            if offset < total { self.orders.list(&filter, From::Offset(offset), size).await? } else { Vec::new() };
        Ok(Numbered { orders, page, size, total })
    }

    /// The page after an id; `None` is the first.
    pub async fn page_after(
        &self,
        viewer: &Viewer,
        status: Option<Status>,
        after: Option<OrderId>,
        size: u32,
    ) -> Result<Keyset, QueryError> {
        let filter = filter(viewer, status);
        let size = size.clamp(1, PAGE_MAX);
        let from = after.map_or(From::Offset(0), From::After);
        let total = self.orders.count(&filter).await?;
        // One more than asked tells whether there is a next page.
        let mut orders = self.orders.list(&filter, from, size + 1).await?;
        let more = orders.len() > size as usize;
        orders.truncate(size as usize);
        let next = if more { orders.last().map(|order| order.id) } else { None };
        Ok(Keyset { orders, size, total, next })
    }
}

fn filter(viewer: &Viewer, status: Option<Status>) -> Filter {
    Filter { owner: viewer.owner(), status }
}
