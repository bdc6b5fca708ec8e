//! Queries for orders: the cache first, then the store. Orders that the viewer may not see are not found.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Order, OrderId, Status};
use ports::clock::Clock;
use ports::orders::cache::OrderCache;
use ports::orders::{OrderFilter, OrderStore, PageStart};

use crate::dispatch::Viewer;
use crate::error::QueryError;
use crate::policy::breaker::{self, BreakerPermit, CircuitBreaker};

mod order_list;

pub use order_list::OrderList;

/// Limit of orders on a page.
pub const PAGE_MAX: u32 = 500;

/// When reads skip a failing cache, and for how long.
const CACHE_BREAKER: breaker::Options = breaker::Options { failures: 5, open: Duration::from_secs(30) };

/// Cache results, counted for the metrics of crate `api`.
#[derive(Default)]
pub struct CacheCounters {
    /// Reads that found the order in the cache.
    pub hits: AtomicU64,
    /// Reads that did not find the order in the cache.
    pub misses: AtomicU64,
    /// Failed cache calls; reads continued with the store.
    pub errors: AtomicU64,
    /// Reads that skipped the cache because its breaker was open.
    pub degraded: AtomicU64,
}

/// The queries of the service over a store and a cache.
pub struct Queries {
    orders: Arc<dyn OrderStore>,
    cache: Arc<dyn OrderCache>,
    clock: Arc<dyn Clock>,
    breaker: Mutex<CircuitBreaker>,
    list_max_rows: u32,
    /// Counts of cache results since the start.
    pub cache_counters: CacheCounters,
}

/// A cache call that the breaker allowed. Dropping it without a result lets the next call probe.
struct CacheCall<'a> {
    queries: &'a Queries,
    finished: bool,
}

impl CacheCall<'_> {
    fn finish(mut self, succeeded: bool) {
        self.finished = true;
        let now = self.queries.now();
        let mut breaker = self.queries.breaker();
        if succeeded {
            breaker.succeeded();
        } else {
            breaker.failed(now);
        }
    }
}

impl Drop for CacheCall<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let now = self.queries.now();
            self.queries.breaker().probe_without_result(now);
        }
    }
}

/// A page selected by number, with the total.
pub struct NumberedPage {
    /// Orders of the page, newest first.
    pub orders: OrderList,
    /// Number of the page, from 0.
    pub page: u64,
    /// Limit of orders on a page.
    pub size: u32,
    /// Number of orders on all pages.
    pub total: u64,
}

/// A page selected by the last id of the page before it. It ends early where its orders reach [`ports::orders::LIST_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysetPage {
    /// Orders of the page, newest first.
    pub orders: Vec<Order>,
    /// Limit of orders on a page.
    pub size: u32,
    /// Number of orders on all pages.
    pub total: u64,
    /// Id after which the next page begins, if there is one.
    pub next: Option<OrderId>,
}

impl Queries {
    /// Creates the queries; `list_max_rows` limits [`Queries::list`].
    pub fn new(
        orders: Arc<dyn OrderStore>,
        cache: Arc<dyn OrderCache>,
        clock: Arc<dyn Clock>,
        list_max_rows: u32,
    ) -> Self {
        let breaker = Mutex::new(CircuitBreaker::new(CACHE_BREAKER));
        Self { orders, cache, clock, breaker, list_max_rows, cache_counters: CacheCounters::default() }
    }

    fn breaker(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.clock.now().millis()).unwrap_or(0))
    }

    /// Asks the breaker for a cache call. Only reads ask; commands update the cache even while the breaker is open.
    fn cache_call(&self) -> Option<CacheCall<'_>> {
        let now = self.now();
        match self.breaker().pass(now) {
            BreakerPermit::Free | BreakerPermit::Probe => Some(CacheCall { queries: self, finished: false }),
            BreakerPermit::Wait(_) => None,
        }
    }

    /// Reads one order, from the cache if it is there.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] also for an order that the viewer may not see.
    pub async fn find(&self, id: OrderId, viewer: &Viewer) -> Result<Arc<Order>, QueryError> {
        let order = match self.cached(id).await {
            Some(order) => order,
            None => self.load(id).await?,
        };
        if viewer.sees(&order) { Ok(order) } else { Err(QueryError::NotFound) }
    }

    async fn cached(&self, id: OrderId) -> Option<Arc<Order>> {
        let Some(call) = self.cache_call() else {
            self.cache_counters.degraded.fetch_add(1, Relaxed);
            return None;
        };
        let found = self.cache.get(id).await;
        call.finish(found.is_ok());
        let counter = match &found {
            Ok(Some(_)) => &self.cache_counters.hits,
            Ok(None) => &self.cache_counters.misses,
            // A failing cache costs time; the store still returns the order.
            Err(_) => &self.cache_counters.errors,
        };
        counter.fetch_add(1, Relaxed);
        found.ok().flatten()
    }

    async fn load(&self, id: OrderId) -> Result<Arc<Order>, QueryError> {
        let order = Arc::new(self.orders.find(id).await?.ok_or(QueryError::NotFound)?);
        if let Some(call) = self.cache_call() {
            let put = self.cache.put(Arc::clone(&order)).await;
            call.finish(put.is_ok());
            if put.is_err() {
                self.cache_counters.errors.fetch_add(1, Relaxed);
            }
        }
        Ok(order)
    }

    /// Lists the newest orders, at most `list_max_rows`.
    pub fn list(&self, viewer: &Viewer, status: Option<Status>) -> OrderList {
        self.order_list(filter(viewer, status), PageStart::Offset(0), self.list_max_rows)
    }

    fn order_list(&self, filter: OrderFilter, from: PageStart, limit: u32) -> OrderList {
        OrderList::new(Arc::clone(&self.orders), filter, from, limit)
    }

    /// Reads page `page`, counted from 0; `size` is clamped to 1…[`PAGE_MAX`].
    pub async fn page(
        &self,
        viewer: &Viewer,
        status: Option<Status>,
        page: u64,
        size: u32,
    ) -> Result<NumberedPage, QueryError> {
        let filter = filter(viewer, status);
        let size = size.clamp(1, PAGE_MAX);
        let total = self.orders.count(&filter).await?;
        let offset = page.saturating_mul(u64::from(size));
        let limit = if offset < total { size } else { 0 };
        let orders = self.order_list(filter, PageStart::Offset(offset), limit);
        Ok(NumberedPage { orders, page, size, total })
    }

    /// Reads the page after an id, or the first page for `None`; `size` is clamped to 1…[`PAGE_MAX`].
    pub async fn page_after(
        &self,
        viewer: &Viewer,
        status: Option<Status>,
        after: Option<OrderId>,
        size: u32,
    ) -> Result<KeysetPage, QueryError> {
        let filter = filter(viewer, status);
        let size = size.clamp(1, PAGE_MAX);
        let from = after.map_or(PageStart::Offset(0), PageStart::After);
        let total = self.orders.count(&filter).await?;
        let orders = self.order_list(filter.clone(), from, size).read_within_bytes().await?;
        let next = match orders.last() {
            Some(last) => self.orders.list(&filter, PageStart::After(last.id), 1).await?.pop().map(|_| last.id),
            None => None,
        };
        Ok(KeysetPage { orders, size, total, next })
    }
}

fn filter(viewer: &Viewer, status: Option<Status>) -> OrderFilter {
    OrderFilter { owner: viewer.owner(), status }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicUsize};

    use async_trait::async_trait;
    use domain::{Hlc, Item, Items, Money, NewOrder, RegionId, Subject, Timestamp};
    use futures::FutureExt;
    use ports::Error;
    use ports::orders::{Commit, Committed, IdempotencyMark};

    use super::*;

    /// A store with a single order.
    struct SingleOrder(Order);

    #[async_trait]
    impl OrderStore for SingleOrder {
        async fn commit(&self, _: Commit) -> Result<Committed, Error> {
            Err(Error::Broken("this store is read-only".into()))
        }
        async fn find(&self, _: OrderId) -> Result<Option<Order>, Error> {
            Ok(Some(self.0.clone()))
        }
        async fn list(&self, _: &OrderFilter, _: PageStart, _: u32) -> Result<Vec<Order>, Error> {
            Ok(Vec::new())
        }
        async fn count(&self, _: &OrderFilter) -> Result<u64, Error> {
            Ok(0)
        }
        async fn oldest(&self, _: Status, _: Option<OrderId>, _: u32) -> Result<Vec<OrderId>, Error> {
            Ok(Vec::new())
        }
        async fn find_mark(&self, _: &Subject, _: &str, _: Duration) -> Result<Option<IdempotencyMark>, Error> {
            Ok(None)
        }
        async fn sweep_marks(&self, _: Duration, _: u32) -> Result<u64, Error> {
            Ok(0)
        }
    }

    /// A cache that always fails and counts its calls.
    #[derive(Default)]
    struct FailingCache(AtomicUsize);

    #[async_trait]
    impl OrderCache for FailingCache {
        async fn get(&self, _: OrderId) -> Result<Option<Arc<Order>>, Error> {
            self.0.fetch_add(1, Relaxed);
            Err(Error::Unreachable("redis".into()))
        }
        async fn put(&self, _: Arc<Order>) -> Result<(), Error> {
            self.0.fetch_add(1, Relaxed);
            Err(Error::Unreachable("redis".into()))
        }
        async fn evict(&self, _: OrderId) -> Result<(), Error> {
            Ok(())
        }
    }

    #[derive(Default)]
    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Relaxed))
        }
    }

    fn order() -> Order {
        let item = Item::new("tea", 1, Money::parse("1").expect("a number")).expect("an item");
        let (order, _) = Order::place(NewOrder {
            id: OrderId::from_bytes([1; 16]),
            event_id: domain::EventId::from_bytes([2; 16]),
            owner: Subject::new("ann").expect("a name"),
            items: Items::new(vec![item]).expect("items"),
            region: RegionId::new("local"),
            now: Timestamp::from_millis(0),
            received: Hlc::default(),
        });
        order
    }

    #[test]
    fn failing_cache_is_skipped_for_thirty_seconds_and_every_read_succeeds() {
        let (cache, clock) = (Arc::new(FailingCache::default()), Arc::new(ManualClock::default()));
        let queries = Queries::new(Arc::new(SingleOrder(order())), cache.clone(), clock.clone(), 10);
        let viewer = Viewer::Admin;
        let read = || {
            let found = queries.find(order().id, &viewer).now_or_never().expect("the fakes never wait");
            found.expect("the store has the order")
        };

        (0..20).for_each(|_| drop(read()));
        assert_eq!(cache.0.load(Relaxed), 5, "five failures open the breaker");
        assert_eq!(queries.cache_counters.degraded.load(Relaxed), 17, "reads that skip the cache are counted");
        clock.0.store(30_000, Relaxed);
        (0..20).for_each(|_| drop(read()));
        assert_eq!(cache.0.load(Relaxed), 6, "one probe, and it fails");
    }
}
