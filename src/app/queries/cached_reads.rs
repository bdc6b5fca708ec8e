//! Reads through the cache: the cache first, then the store, whose answer is cached. A failing cache costs nothing but speed.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Order, OrderId, Timestamp};
use ports::Error;
use ports::clock::Clock;
use ports::orders::cache::{CachedList, ListKey, ListLookup, ListQuery, ListScope, OrderCache};
use ports::orders::{LIST_BYTES, OrderFilter, OrderStore, PageStart};

use crate::error::QueryError;
use crate::policy::breaker::{self, BreakerPermit, CircuitBreaker};

/// Cache results, counted for the metrics of crate `api`.
#[derive(Default)]
pub struct CacheCounters {
    /// Reads that were answered from the cache.
    pub hits: AtomicU64,
    /// Reads that the cache could not answer.
    pub misses: AtomicU64,
    /// Failed cache calls; reads continued with the store.
    pub errors: AtomicU64,
    /// Reads that skipped the cache because its breaker was open.
    pub degraded: AtomicU64,
}

/// A store and the cache in front of it.
pub(crate) struct CachedReads {
    orders: Arc<dyn OrderStore>,
    cache: Arc<dyn OrderCache>,
    clock: Arc<dyn Clock>,
    breaker: Mutex<CircuitBreaker>,
    /// Counts of cache results since the start.
    pub(crate) counters: Arc<CacheCounters>,
}

/// A cache call that the breaker allowed. Dropping it without a result lets the next call probe.
struct CacheCall<'a> {
    reads: &'a CachedReads,
    finished: bool,
}

impl CacheCall<'_> {
    fn finish(mut self, succeeded: bool) {
        self.finished = true;
        let now = self.reads.now();
        let mut breaker = self.reads.breaker();
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
            let now = self.reads.now();
            self.reads.breaker().probe_without_result(now);
        }
    }
}

impl CachedReads {
    pub(crate) fn new(
        orders: Arc<dyn OrderStore>,
        cache: Arc<dyn OrderCache>,
        clock: Arc<dyn Clock>,
        breaker: breaker::Options,
    ) -> Self {
        let breaker = Mutex::new(CircuitBreaker::new(breaker));
        Self { orders, cache, clock, breaker, counters: Arc::default() }
    }

    /// Reads one order; an order of the store is cached.
    pub(crate) async fn find(&self, id: OrderId) -> Result<Arc<Order>, QueryError> {
        if let Some(order) = self.lookup(self.cache.get(id), Option::is_some).await.flatten() {
            return Ok(order);
        }
        let started_at = self.clock.now();
        let order = Arc::new(self.orders.find(id).await?.ok_or(QueryError::NotFound)?);
        self.store(self.cache.put(Arc::clone(&order), self.clock.now().since(started_at))).await;
        Ok(order)
    }

    /// Reads a chunk of a list, see [`OrderStore::list`].
    pub(crate) async fn list(
        &self,
        filter: &OrderFilter,
        from: PageStart,
        limit: u32,
    ) -> Result<Vec<Order>, QueryError> {
        let key = key(filter, ListQuery::Chunk { status: filter.status, from, limit });
        let lookup = self.find_list(&key).await;
        if let Some(ListLookup { found: Some(CachedList::Chunk(orders)), .. }) = &lookup {
            return Ok(orders.to_vec());
        }
        let started_at = self.clock.now();
        let orders = self.orders.list(filter, from, limit).await?;
        self.put_list(&key, lookup, started_at, || CachedList::Chunk(orders.as_slice().into())).await;
        Ok(orders)
    }

    /// Counts the orders that match the filter.
    pub(crate) async fn count(&self, filter: &OrderFilter) -> Result<u64, QueryError> {
        let key = key(filter, ListQuery::Count { status: filter.status });
        let lookup = self.find_list(&key).await;
        if let Some(ListLookup { found: Some(CachedList::Count(count)), .. }) = lookup {
            return Ok(count);
        }
        let started_at = self.clock.now();
        let count = self.orders.count(filter).await?;
        self.put_list(&key, lookup, started_at, || CachedList::Count(count)).await;
        Ok(count)
    }

    async fn find_list(&self, key: &ListKey) -> Option<ListLookup> {
        self.lookup(self.cache.get_list(key), |lookup| lookup.found.is_some()).await
    }

    /// Caches a list that was read after its lookup, from `started_at` on. A list of large orders is not cached: it would displace many others.
    async fn put_list(
        &self,
        key: &ListKey,
        lookup: Option<ListLookup>,
        started_at: Timestamp,
        list: impl FnOnce() -> CachedList,
    ) {
        let Some(ListLookup { generation, .. }) = lookup else { return };
        let list = list();
        if list.bytes() <= LIST_BYTES {
            self.store(self.cache.put_list(key, generation, list, self.clock.now().since(started_at))).await;
        }
    }

    /// The result of a read from the cache; `None` when it failed, or when the breaker forbids it.
    async fn lookup<T>(&self, read: impl Future<Output = Result<T, Error>>, is_hit: fn(&T) -> bool) -> Option<T> {
        let Some(call) = self.cache_call() else {
            self.counters.degraded.fetch_add(1, Relaxed);
            return None;
        };
        let found = read.await;
        call.finish(found.is_ok());
        let counter = match &found {
            Ok(found) if is_hit(found) => &self.counters.hits,
            Ok(_) => &self.counters.misses,
            // A failing cache costs time; the store still answers.
            Err(_) => &self.counters.errors,
        };
        counter.fetch_add(1, Relaxed);
        found.ok()
    }

    async fn store(&self, write: impl Future<Output = Result<(), Error>>) {
        if let Some(call) = self.cache_call() {
            let written = write.await;
            call.finish(written.is_ok());
            if written.is_err() {
                self.counters.errors.fetch_add(1, Relaxed);
            }
        }
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
        match self.breaker().try_acquire(now) {
            BreakerPermit::Free | BreakerPermit::Probe => Some(CacheCall { reads: self, finished: false }),
            BreakerPermit::Wait(_) => None,
        }
    }
}

fn key(filter: &OrderFilter, query: ListQuery) -> ListKey {
    ListKey { scope: filter.owner.clone().map_or(ListScope::All, ListScope::Owner), query }
}
