//! `OrderCache` on Redis, and why it serves no order that is older than a change whose response was sent.
//!
//! **In normal operation** a change is put into the cache before its response is sent, and a put never replaces a newer version: every
//! instance reads the change with its next get.
//!
//! **A commit without a reply** may take effect after another instance has read the version before it. So its caller stores the version
//! that it may have committed, without an order: older versions are refused until the time to live ends.
//!
//! **After an outage** entries may be outdated: a put may have failed, or the server may have restarted from an older snapshot. So the
//! cache has an *epoch*. An entry carries the epoch it was written under, a get compares it with the current one in the same round trip,
//! and no instance serves an entry of another epoch. Raising the epoch empties the cache in one step, for all instances.
//!
//! A process raises the epoch when it has a reason to invalidate the cache ([`crate::cache::epoch`]): it starts; one of its puts or evicts
//! failed, was cancelled, or was skipped because the server was unavailable; any call could not reach the server; a connection leads to
//! another server process (`run_id`); the epoch is missing or lower than one it has read. Until the raise it serves nothing from the cache.
//! The maintenance task raises at once and, while that fails, again after pauses of at most a second: other instances serve an older
//! version for no longer than that after the server's return. A reason that occurs during a raise needs another raise.
//!
//! **A slow process** remains: it may put an order that it read before an outage, after every other process has forgotten the change in
//! between. So a process caches orders only under an epoch that it has known for `epoch_age_min`, longer than any request lasts. Until
//! then a put stores only the version, which hides older entries and serves nothing. The disadvantage is a cache that starts to fill ten seconds
//! after an outage.
//!
//! **Not guaranteed**: an instance that is cut off from a Redis which all others reach cannot raise the epoch. Until it reconnects (or
//! another instance has a reason to invalidate) the others may serve an order as old as its time to live. And Redis itself must have one
//! master: an epoch does not protect against a demoted master that still accepts writes.
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use deadpool_redis::redis;
use domain::{Order, OrderId, Subject};
use ports::Error;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, OrderCache};
use tracing::Instrument;

use crate::connection::call::{Caller, Request, single};
use crate::connection::client::{Redis, RedisInner};
use crate::orders::order_json;

#[async_trait]
impl OrderCache for Redis {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        let inner = &self.inner;
        inner.require_valid_cache()?;
        let mut get = inner.scripts.cache_get.prepare_invoke();
        get.key(inner.keys.order(id)).key(inner.keys.epoch());
        let (epoch, text): (Option<u64>, Option<String>) =
            inner.call(Caller::Cache, "read a cached order", Request::Script(&get)).await?;
        let is_current = inner.observe_epoch(epoch);
        // A reason to invalidate may have occurred while the reply was in transit.
        inner.require_valid_cache()?;
        let order = text.filter(|_| is_current).and_then(|text| order_json::parse(&text));
        Ok(order.filter(|order| order.id == id).map(Arc::new))
    }

    async fn put(&self, order: Arc<Order>, _age: Duration) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        run_to_completion(async move { inner.put_order(&order).await }).await
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        run_to_completion(async move { inner.evict_order(id).await }).await
    }

    async fn refuse_older(&self, id: OrderId, version: u64) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        run_to_completion(async move { inner.put_version(id, version).await }).await
    }

    async fn get_list(&self, key: &ListKey) -> Result<ListLookup, Error> {
        self.inner.find_list(key).await
    }

    async fn put_list(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: CachedList,
        _age: Duration,
    ) -> Result<(), Error> {
        self.inner.put_list(key, generation, &list).await
    }

    async fn evict_lists(&self, owner: &Subject) -> Result<(), Error> {
        let (inner, owner) = (Arc::clone(&self.inner), owner.clone());
        run_to_completion(async move { inner.evict_lists(&owner).await }).await
    }

    async fn evict_all(&self) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        inner.invalidate_cache();
        // Entries of an earlier epoch are not served. If this raise fails, the maintenance task repeats it.
        run_to_completion(async move { inner.raise_epoch_if_invalid().await }).await
    }
}

impl RedisInner {
    async fn put_order(&self, order: &Order) -> Result<(), Error> {
        let guard = WriteGuard::new(self);
        let text = order_json::format(order).ok_or_else(|| Error::Rejected("the order cannot be serialised".into()))?;
        self.run_put(order.id, order.version, &text, self.epoch_for_writes()).await?;
        guard.disarm();
        Ok(())
    }

    /// Stores a version without an order: a put without an epoch does.
    async fn put_version(&self, id: OrderId, version: u64) -> Result<(), Error> {
        let guard = WriteGuard::new(self);
        self.run_put(id, version, "", None).await?;
        guard.disarm();
        Ok(())
    }

    async fn run_put(&self, id: OrderId, version: u64, text: &str, epoch: Option<u64>) -> Result<(), Error> {
        let mut put = self.scripts.cache_put.prepare_invoke();
        put.key(self.keys.order(id)).key(self.keys.epoch());
        put.arg(version).arg(text).arg(epoch.map(|epoch| epoch.to_string()).unwrap_or_default());
        put.arg(shortened(self.options.order_ttl, self.options.cache_jitter * self.options.rng.fraction()));
        let epoch: Option<u64> = self.call(Caller::Cache, "cache an order", Request::Script(&put)).await?;
        self.observe_epoch(epoch);
        Ok(())
    }

    /// Deletes the order and keeps its version, so that a slow reader cannot put an older one back.
    async fn evict_order(&self, id: OrderId) -> Result<(), Error> {
        let guard = WriteGuard::new(self);
        let mut delete = redis::cmd("HDEL");
        delete.arg(self.keys.order(id)).arg("e").arg("o");
        let _: (i64,) = self.call(Caller::Cache, "evict an order", Request::Pipeline(&single(delete))).await?;
        guard.disarm();
        Ok(())
    }

    /// The epoch under which this process may cache what it read.
    pub(crate) fn epoch_for_writes(&self) -> Option<u64> {
        self.epoch.lock().epoch_for_writes(self.options.epoch_age_min, Instant::now())
    }

    pub(crate) fn require_valid_cache(&self) -> Result<(), Error> {
        if self.epoch.lock().is_valid() {
            return Ok(());
        }
        if let Some(metrics) = &self.options.metrics {
            metrics.cache_degraded_mode_count.inc();
        }
        Err(Error::Unreachable("the cache is not served until its epoch has been raised".into()))
    }

    /// Records the epoch of a reply. Returns whether the reply is current.
    pub(crate) fn observe_epoch(&self, epoch: Option<u64>) -> bool {
        match epoch {
            Some(epoch) => self.epoch.lock().observe(epoch, Instant::now()),
            None => {
                self.invalidate_cache();
                false
            }
        }
    }
}

/// A time to live in milliseconds without this share of it.
pub(crate) fn shortened(ttl: Duration, share: f64) -> u64 {
    u64::try_from(ttl.mul_f64(1.0 - share).as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Invalidates the cache when a write ends without success: by an error, or because its future is dropped.
pub(crate) struct WriteGuard<'a> {
    inner: &'a RedisInner,
    armed: bool,
}

impl<'a> WriteGuard<'a> {
    pub(crate) fn new(inner: &'a RedisInner) -> Self {
        Self { inner, armed: true }
    }

    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.inner.invalidate_cache();
        }
    }
}

/// Runs a write to its end also when the caller's future is dropped: a client that disconnects must not invalidate the whole cache.
async fn run_to_completion(write: impl Future<Output = Result<(), Error>> + Send + 'static) -> Result<(), Error> {
    match tokio::spawn(write.in_current_span()).await {
        Ok(result) => result,
        Err(_) => Err(Error::Unknown("the runtime ended during a write to the cache".into())),
    }
}
