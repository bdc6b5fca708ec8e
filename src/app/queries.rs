//! Reading orders: cache first, the store behind it; an order that is not the viewer's is not there.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Order, OrderId, Status};
use ports::cache::OrderCache;
use ports::clock::Clock;
use ports::orders::{OrderFilter, OrderStore, PageStart};

use crate::dispatch::Viewer;
use crate::error::QueryError;
use crate::policy::breaker::{self, BreakerPermit, CircuitBreaker};

/// Largest page.
pub const PAGE_MAX: u32 = 500;

/// When reads go past a cache that keeps failing, and for how long (the seeds' service).
const CACHE_BREAKER: breaker::Options = breaker::Options { failures: 5, open: Duration::from_secs(30) };

/// What the cache did, for the metrics that `api` keeps.
#[derive(Default)]
pub struct CacheCounters {
    /// Found.
    pub hits: AtomicU64,
    /// Not found.
    pub misses: AtomicU64,
    /// Failed; the store answered instead.
    pub errors: AtomicU64,
    /// Not asked, because it kept failing; the store answered instead.
    pub degraded: AtomicU64,
}

/// The read side.
pub struct Queries {
    orders: Arc<dyn OrderStore>,
    cache: Arc<dyn OrderCache>,
    clock: Arc<dyn Clock>,
    breaker: Mutex<CircuitBreaker>,
    list_max_rows: u32,
    /// What the cache did so far.
    pub cache_counters: CacheCounters,
}

/// A call to the cache that the breaker let through. One that is dropped without an answer says nothing: the next call asks again.
struct Asked<'a> {
    queries: &'a Queries,
    answered: bool,
}

impl Asked<'_> {
    fn answered(mut self, well: bool) {
        self.answered = true;
        let now = self.queries.now();
        let mut breaker = self.queries.breaker();
        if well {
            breaker.succeeded();
        } else {
            breaker.failed(now);
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let now = self.queries.now();
            self.queries.breaker().probe_without_result(now);
        }
    }
}

/// A numbered page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedPage {
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
pub struct KeysetPage {
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

    /// Whether the cache may be asked now. Only reads ask: a change is told to the cache whatever its breaker says.
    fn ask_cache(&self) -> Option<Asked<'_>> {
        let now = self.now();
        match self.breaker().pass(now) {
            BreakerPermit::Free | BreakerPermit::Probe => Some(Asked { queries: self, answered: false }),
            BreakerPermit::Wait(_) => None,
        }
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
        let Some(asked) = self.ask_cache() else {
            self.cache_counters.degraded.fetch_add(1, Relaxed);
            return None;
        };
        let found = self.cache.get(id).await;
        asked.answered(found.is_ok());
        let counter = match &found {
            Ok(Some(_)) => &self.cache_counters.hits,
            Ok(None) => &self.cache_counters.misses,
            // A cache that fails costs time, not answers.
            Err(_) => &self.cache_counters.errors,
        };
        counter.fetch_add(1, Relaxed);
        found.ok().flatten()
    }

    async fn load(&self, id: OrderId) -> Result<Arc<Order>, QueryError> {
        let order = Arc::new(self.orders.find(id).await?.ok_or(QueryError::NotFound)?);
        if let Some(asked) = self.ask_cache() {
            let put = self.cache.put(Arc::clone(&order)).await;
            asked.answered(put.is_ok());
            if put.is_err() {
                self.cache_counters.errors.fetch_add(1, Relaxed);
            }
        }
        Ok(order)
    }

    /// The newest orders, bounded.
    pub async fn list(&self, viewer: &Viewer, status: Option<Status>) -> Result<Vec<Order>, QueryError> {
        Ok(self.orders.list(&filter(viewer, status), PageStart::Offset(0), self.list_max_rows).await?)
    }

    /// Page `page` of pages of `size`, clamped to 1…500.
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
        let orders =
            if offset < total { self.orders.list(&filter, PageStart::Offset(offset), size).await? } else { Vec::new() };
        Ok(NumberedPage { orders, page, size, total })
    }

    /// The page after an id; `None` is the first.
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
        // One more than asked tells whether there is a next page.
        let mut orders = self.orders.list(&filter, from, size + 1).await?;
        let more = orders.len() > size as usize;
        orders.truncate(size as usize);
        let next = if more { orders.last().map(|order| order.id) } else { None };
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
    use domain::{Item, Items, Money, NewOrder, RegionId, Subject, Timestamp};
    use futures::FutureExt;
    use ports::Error;
    use ports::orders::{Commit, Committed, IdempotencyMark};

    use super::*;

    /// Knows one order, which everybody may see.
    struct One(Order);

    #[async_trait]
    impl OrderStore for One {
        async fn commit(&self, _: Commit) -> Result<Committed, Error> {
            Err(Error::Broken("it only reads".into()))
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

    /// A cache that is away, and counts who came.
    #[derive(Default)]
    struct Away(AtomicUsize);

    #[async_trait]
    impl OrderCache for Away {
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
    struct Watch(AtomicI64);

    impl Clock for Watch {
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
        });
        order
    }

    #[test]
    fn a_cache_that_keeps_failing_is_left_alone_for_half_a_minute_and_every_read_is_answered() {
        let (cache, clock) = (Arc::new(Away::default()), Arc::new(Watch::default()));
        let queries = Queries::new(Arc::new(One(order())), cache.clone(), clock.clone(), 10);
        let viewer = Viewer::Admin;
        let read = || {
            let found = queries.find(order().id, &viewer).now_or_never().expect("nobody waits here");
            found.expect("the store answers")
        };

        (0..20).for_each(|_| drop(read()));
        assert_eq!(cache.0.load(Relaxed), 5, "five failures open the breaker");
        assert_eq!(queries.cache_counters.degraded.load(Relaxed), 17, "reads past the cache are counted");
        clock.0.store(30_000, Relaxed);
        (0..20).for_each(|_| drop(read()));
        assert_eq!(cache.0.load(Relaxed), 6, "one probe, and it fails");
    }
}
