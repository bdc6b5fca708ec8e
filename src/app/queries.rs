//! Queries for orders: the cache first, then the store. Orders that the viewer may not see are not found.
use std::sync::Arc;

use domain::{Order, OrderId, Status};
use ports::clock::Clock;
use ports::orders::cache::OrderCache;
use ports::orders::{OrderFilter, OrderStore, PageStart};

use crate::dispatch::Viewer;
use crate::error::QueryError;
use crate::policy::breaker;

mod cached_reads;
mod order_list;

pub use cached_reads::CacheCounters;
use cached_reads::CachedReads;
pub use order_list::OrderList;

/// Limit of orders on a page.
pub const PAGE_MAX: u32 = 500;

/// The queries of the service over a store and a cache.
///
/// Where a method says no more, it fails only with [`QueryError::Unavailable`] or, while the store closes, [`QueryError::Unknown`]. Cancel-safe: a
/// dropped query changes no order.
pub struct Queries {
    reads: Arc<CachedReads>,
    list_max_rows: u32,
    /// Counts of cache results since the start.
    pub cache_counters: Arc<CacheCounters>,
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
    /// Creates the queries; `list_max_rows` limits [`Queries::list`], and `breaker` says when reads skip a failing cache.
    pub fn new(
        orders: Arc<dyn OrderStore>,
        cache: Arc<dyn OrderCache>,
        clock: Arc<dyn Clock>,
        breaker: breaker::Options,
        list_max_rows: u32,
    ) -> Self {
        let reads = CachedReads::new(orders, cache, clock, breaker);
        let cache_counters = Arc::clone(&reads.counters);
        Self { reads: Arc::new(reads), list_max_rows, cache_counters }
    }

    /// Reads one order, from the cache if it is there.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] also for an order that the viewer may not see.
    pub async fn find(&self, id: OrderId, viewer: &Viewer) -> Result<Arc<Order>, QueryError> {
        let order = self.reads.find(id).await?;
        if viewer.sees(&order) { Ok(order) } else { Err(QueryError::NotFound) }
    }

    /// Lists the newest orders, at most `list_max_rows`.
    pub fn list(&self, viewer: &Viewer, status: Option<Status>) -> OrderList {
        self.order_list(filter(viewer, status), PageStart::Offset(0), self.list_max_rows)
    }

    fn order_list(&self, filter: OrderFilter, from: PageStart, limit: u32) -> OrderList {
        OrderList::new(Arc::clone(&self.reads), filter, from, limit)
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
        let total = self.reads.count(&filter).await?;
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
        let total = self.reads.count(&filter).await?;
        let orders = self.order_list(filter.clone(), from, size).read_within_bytes().await?;
        let next = match orders.last() {
            Some(last) => self.reads.list(&filter, PageStart::After(last.id), 1).await?.pop().map(|_| last.id),
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
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use async_trait::async_trait;
    use domain::{EventId, Hlc, Item, Items, Money, NewOrder, RegionId, Subject, Timestamp};
    use futures::FutureExt;
    use ports::Error;
    use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, ListScope};
    use ports::orders::{Commit, CommitOutcome, IdempotencyRecord};

    use super::*;

    /// A store with a few orders. Counts its reads, each of which takes a time of the clock.
    #[derive(Default)]
    struct CountedStore {
        orders: Mutex<Vec<Order>>,
        reads: AtomicUsize,
        clock: Arc<ManualClock>,
        read_ms: AtomicI64,
    }

    impl CountedStore {
        fn matching(&self, filter: &OrderFilter) -> Vec<Order> {
            self.reads.fetch_add(1, Relaxed);
            self.clock.0.fetch_add(self.read_ms.load(Relaxed), Relaxed);
            let matches = |order: &&Order| filter.owner.as_ref().is_none_or(|owner| *owner == order.owner);
            self.orders.lock().expect("no panic").iter().filter(matches).cloned().collect()
        }

        fn add(&self, number: u8, owner: &str, name: &str) -> Order {
            let item = Item::new(name, 1, Money::parse("1").expect("a number")).expect("an item");
            let (order, _) = Order::place(NewOrder {
                id: OrderId::from_bytes([number; 16]),
                event_id: EventId::from_bytes([2; 16]),
                owner: Subject::new(owner).expect("a name"),
                items: Items::new(vec![item; 400]).expect("items"),
                region: RegionId::new("local"),
                now: Timestamp::from_millis(0),
                physical_time: Timestamp::from_millis(0),
                received: Hlc::default(),
            });
            self.orders.lock().expect("no panic").insert(0, order.clone());
            order
        }
    }

    #[async_trait]
    impl OrderStore for CountedStore {
        async fn commit(&self, _: Commit) -> Result<CommitOutcome, Error> {
            Err(Error::Broken("this store is read-only".into()))
        }
        async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
            Ok(self.matching(&OrderFilter::default()).into_iter().find(|order| order.id == id))
        }
        async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
            let orders = self.matching(filter).into_iter();
            let behind = |order: &Order| matches!(from, PageStart::After(id) if order.id >= id);
            let skip = if let PageStart::Offset(skip) = from { skip as usize } else { 0 };
            Ok(orders.skip_while(behind).skip(skip).take(limit as usize).collect())
        }
        async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
            Ok(self.matching(filter).len() as u64)
        }
        async fn oldest(&self, _: Status, _: Option<OrderId>, _: u32) -> Result<Vec<OrderId>, Error> {
            Ok(Vec::new())
        }
        async fn find_idempotency_record(
            &self,
            _: &Subject,
            _: &str,
            _: Duration,
        ) -> Result<Option<IdempotencyRecord>, Error> {
            Ok(None)
        }
        async fn sweep_idempotency_records(&self, _: Duration, _: u32) -> Result<u64, Error> {
            Ok(0)
        }
    }

    /// A cache of lists that counts its calls and fails on request.
    #[derive(Default)]
    struct FlakyCache {
        failing: AtomicBool,
        calls: AtomicUsize,
        lists: Mutex<HashMap<ListKey, CachedList>>,
        /// How long the reads of the cached orders and lists took.
        ages: Mutex<Vec<Duration>>,
    }

    impl FlakyCache {
        fn call(&self) -> Result<(), Error> {
            self.calls.fetch_add(1, Relaxed);
            if self.failing.load(Relaxed) { Err(Error::Unreachable("redis".into())) } else { Ok(()) }
        }
    }

    #[async_trait]
    impl OrderCache for FlakyCache {
        async fn get(&self, _: OrderId) -> Result<Option<Arc<Order>>, Error> {
            self.call().map(|()| None)
        }
        async fn put(&self, _: Arc<Order>, age: Duration) -> Result<(), Error> {
            self.ages.lock().expect("no panic").push(age);
            self.call()
        }
        async fn evict(&self, _: OrderId) -> Result<(), Error> {
            Ok(())
        }
        async fn refuse_older(&self, _: OrderId, _: u64) -> Result<(), Error> {
            Ok(())
        }
        async fn get_list(&self, key: &ListKey) -> Result<ListLookup, Error> {
            self.call()?;
            let found = self.lists.lock().expect("no panic").get(key).cloned();
            Ok(ListLookup { generation: ListGeneration(1), found })
        }
        async fn put_list(
            &self,
            key: &ListKey,
            _: ListGeneration,
            list: CachedList,
            age: Duration,
        ) -> Result<(), Error> {
            self.ages.lock().expect("no panic").push(age);
            self.call()?;
            self.lists.lock().expect("no panic").insert(key.clone(), list);
            Ok(())
        }
        async fn evict_lists(&self, owner: &Subject) -> Result<(), Error> {
            let mut lists = self.lists.lock().expect("no panic");
            lists.retain(|key, _| key.scope != ListScope::All && key.scope != ListScope::Owner(owner.clone()));
            Ok(())
        }
        async fn evict_all(&self) -> Result<(), Error> {
            self.lists.lock().expect("no panic").clear();
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

    struct Fixture {
        store: Arc<CountedStore>,
        cache: Arc<FlakyCache>,
        clock: Arc<ManualClock>,
    }

    impl Default for Fixture {
        fn default() -> Self {
            let clock = Arc::<ManualClock>::default();
            let store = CountedStore { clock: Arc::clone(&clock), ..CountedStore::default() };
            Self { store: Arc::new(store), cache: Arc::default(), clock }
        }
    }

    impl Fixture {
        fn queries(&self) -> Queries {
            let breaker = breaker::Options { failures: 5, open: Duration::from_secs(30) };
            Queries::new(self.store.clone(), self.cache.clone(), self.clock.clone(), breaker, 10)
        }

        /// The ids that a list shows, and the number of reads of the store that it took.
        fn listed(&self, queries: &Queries, viewer: &Viewer) -> (Vec<OrderId>, usize) {
            let before = self.store.reads.load(Relaxed);
            let mut list = queries.list(viewer, None);
            let part = list.next_chunk().now_or_never().expect("the fakes never wait").expect("the store answers");
            (part.iter().map(|order| order.id).collect(), self.store.reads.load(Relaxed) - before)
        }
    }

    fn owner(name: &str) -> Viewer {
        Viewer::Owner(Subject::new(name).expect("a name"))
    }

    #[test]
    fn failing_cache_is_skipped_while_the_breaker_is_open_and_every_read_succeeds() {
        let fixture = Fixture::default();
        let order = fixture.store.add(1, "ann", "tea");
        fixture.cache.failing.store(true, Relaxed);
        let queries = fixture.queries();
        let read = || {
            let found = queries.find(order.id, &Viewer::Admin).now_or_never().expect("the fakes never wait");
            found.expect("the store has the order")
        };

        (0..20).for_each(|_| drop(read()));
        assert_eq!(fixture.cache.calls.load(Relaxed), 5, "five failures open the breaker");
        assert_eq!(queries.cache_counters.degraded.load(Relaxed), 17, "reads that skip the cache are counted");
        fixture.clock.0.store(30_000, Relaxed);
        (0..20).for_each(|_| drop(read()));
        assert_eq!(fixture.cache.calls.load(Relaxed), 6, "one probe, and it fails");
    }

    #[test]
    fn cache_receives_the_time_that_each_read_of_the_store_took() {
        let fixture = Fixture::default();
        let order = fixture.store.add(1, "ann", "tea");
        fixture.store.read_ms.store(3_000, Relaxed);
        let queries = fixture.queries();

        queries.find(order.id, &Viewer::Admin).now_or_never().expect("the fakes never wait").expect("it is there");
        fixture.listed(&queries, &Viewer::Admin);
        let counted = queries.reads.count(&OrderFilter::default()).now_or_never();

        assert_eq!(counted.expect("the fakes never wait").expect("the store answers"), 1);
        assert_eq!(*fixture.cache.ages.lock().expect("no panic"), [Duration::from_secs(3); 3]);
    }

    #[test]
    fn list_with_a_failing_cache_is_read_from_the_store() {
        let fixture = Fixture::default();
        let order = fixture.store.add(1, "ann", "tea");
        fixture.cache.failing.store(true, Relaxed);
        let queries = fixture.queries();

        for _ in 0..20 {
            assert_eq!(fixture.listed(&queries, &owner("ann")), (vec![order.id], 1));
        }
        assert_eq!(fixture.cache.calls.load(Relaxed), 5, "five failures open the breaker, for lists too");
    }

    #[test]
    fn repeated_list_is_read_from_the_cache_and_never_shows_another_owners_orders() {
        let fixture = Fixture::default();
        let (of_ann, of_bob) = (fixture.store.add(1, "ann", "tea").id, fixture.store.add(2, "bob", "tea").id);
        let queries = fixture.queries();

        for store_reads in [1, 0] {
            assert_eq!(fixture.listed(&queries, &owner("ann")), (vec![of_ann], store_reads));
            assert_eq!(fixture.listed(&queries, &owner("bob")), (vec![of_bob], store_reads));
            assert_eq!(fixture.listed(&queries, &Viewer::Admin), (vec![of_bob, of_ann], store_reads));
        }
        let page =
            || queries.page(&owner("ann"), None, 0, 10).now_or_never().expect("no wait").expect("the store answers");
        let before = fixture.store.reads.load(Relaxed);
        assert_eq!((page().total, page().total), (1, 1));
        assert_eq!(fixture.store.reads.load(Relaxed) - before, 1, "the total is cached, too");
        assert_eq!(queries.cache_counters.hits.load(Relaxed), 4);
    }

    #[test]
    fn list_of_large_orders_is_not_cached() {
        let fixture = Fixture::default();
        (0..6).for_each(|number| drop(fixture.store.add(number, "ann", &"T".repeat(200))));
        let queries = fixture.queries();

        for _ in 0..2 {
            assert_eq!(fixture.listed(&queries, &owner("ann")).1, 1);
        }
    }
}
