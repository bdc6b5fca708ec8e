//! `OrderCache` on Redis, and why it never shows what an answered change has made old.
//!
//! **While all is well** a change is put into the cache before its answer goes out, and a put never replaces a newer version: every
//! instance sees the change with its next read.
//!
//! **After an outage** the entries are suspect: a put may have failed, or the server may have come back from an older snapshot. So the
//! cache has an *epoch*. An entry carries the one it was written under, a read compares it with the present one in the same round trip,
//! and an entry of another epoch is not shown to anyone. Raising the epoch empties the cache in one step, for all instances.
//!
//! A process raises it when it has a reason to doubt ([`crate::trust`]): it begins; a put or an evict of its own failed, was cut off, or
//! was left out because the server was away; any call could not reach the server; a connection leads to another server process (`run_id`);
//! the epoch is gone or older than one it has seen. From the doubt until the raise it shows nothing from the cache. The keeper raises
//! at once and, while that fails, again and again with pauses of a second at most: an older version is shown to others for no longer
//! than that after the server is back. A doubt that comes up while a raise is under way is not answered by it.
//!
//! **A slow hand** is what remains: an order read before an outage and put after it, when nobody remembers that it has been changed in
//! between. So a process caches orders only under an epoch that it has known for `settle`, longer than any request lives; until then
//! a put leaves only the version behind, which hides what is older and shows nothing. The price is a cache that begins to fill ten
//! seconds after an outage.
//!
//! **What is not promised**: an instance that is cut off from a Redis which all others still reach cannot tell them. Until it gets
//! through (or another one has a reason to doubt) they may see an order as old as its time to live. And Redis itself must have one
//! master: a demoted one that still takes writes is beyond an epoch.
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use deadpool_redis::redis;
use domain::{Order, OrderId};
use ports::Error;
use ports::cache::OrderCache;

use crate::link::{Ask, Caller, one};
use crate::open::{Inner, Redis};
use crate::order_text;

/// The most that is taken off an entry's time to live.
const JITTER: f64 = 0.2;

#[async_trait]
impl OrderCache for Redis {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        let inner = &self.inner;
        inner.must_believe()?;
        let mut get = inner.scripts.cache_get.prepare_invoke();
        get.key(inner.names.order(id)).key(inner.names.epoch());
        let (epoch, text): (Option<u64>, Option<String>) =
            inner.ask(Caller::Cache, "read a cached order", Ask::Script(&get)).await?;
        let present = inner.saw(epoch);
        // A doubt may have come up while the answer was on its way.
        inner.must_believe()?;
        let order = text.filter(|_| present).and_then(|text| order_text::read(&text));
        Ok(order.filter(|order| order.id == id).map(Arc::new))
    }

    async fn put(&self, order: Arc<Order>) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        finished(async move { inner.put(&order).await }).await
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        finished(async move { inner.evict(id).await }).await
    }
}

impl Inner {
    async fn put(self: &Arc<Self>, order: &Order) -> Result<(), Error> {
        let pledge = Pledge::given(self);
        let text = order_text::write(order).ok_or_else(|| Error::Rejected("the order cannot be written".into()))?;
        let epoch = self.trust.lock().epoch_to_write(self.options.settle, Instant::now());
        let mut put = self.scripts.cache_put.prepare_invoke();
        put.key(self.names.order(order.id)).key(self.names.epoch());
        put.arg(order.version).arg(text).arg(epoch.map(|epoch| epoch.to_string()).unwrap_or_default());
        put.arg(self.life_ms());
        let epoch: Option<u64> = self.ask(Caller::Cache, "cache an order", Ask::Script(&put)).await?;
        pledge.kept();
        self.saw(epoch);
        Ok(())
    }

    /// Takes the order away and leaves its version: a slow reader must not put an older one back.
    async fn evict(self: &Arc<Self>, id: OrderId) -> Result<(), Error> {
        let pledge = Pledge::given(self);
        let mut forget = redis::cmd("HDEL");
        forget.arg(self.names.order(id)).arg("e").arg("o");
        let _: (i64,) = self.ask(Caller::Cache, "evict an order", Ask::Pipe(&one(forget))).await?;
        pledge.kept();
        Ok(())
    }

    fn must_believe(&self) -> Result<(), Error> {
        if self.trust.lock().believes() {
            return Ok(());
        }
        if let Some(metrics) = &self.options.metrics {
            metrics.cache_degraded_mode_count.inc();
        }
        Err(Error::Unreachable("the cache is not believed until its epoch has been raised".into()))
    }

    /// Takes note of the epoch that an answer carried; says whether the answer is of the present.
    fn saw(&self, epoch: Option<u64>) -> bool {
        match epoch {
            Some(epoch) => self.trust.lock().saw(epoch, Instant::now()),
            None => {
                self.doubt();
                false
            }
        }
    }

    fn life_ms(&self) -> u64 {
        let life = self.options.order_ttl.mul_f64(1.0 - JITTER * self.options.dice.fraction());
        u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// A promise to tell the cache of an order. Whoever drops it without keeping it, by an error or by being dropped, raises a doubt.
struct Pledge<'a> {
    inner: &'a Inner,
    kept: bool,
}

impl<'a> Pledge<'a> {
    fn given(inner: &'a Inner) -> Self {
        Self { inner, kept: false }
    }

    fn kept(mut self) {
        self.kept = true;
    }
}

impl Drop for Pledge<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.inner.doubt();
        }
    }
}

/// Runs to its end also when the caller goes away: a client that hangs up must not make the whole cache suspect.
async fn finished(work: impl Future<Output = Result<(), Error>> + Send + 'static) -> Result<(), Error> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(_) => Err(Error::Unknown("the runtime ended while the cache was told".into())),
    }
}
