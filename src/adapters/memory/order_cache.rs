//! `OrderCache` in memory. An evicted order leaves its version in the cache until its time to live ends: a slow reader must not cache an older
//! version again.
use std::sync::Arc;
use std::time::Duration;

use domain::{Order, OrderId, Timestamp};
use ports::orders::cache::order_bytes;

use crate::bounded::BoundedMap;

/// Largest order that is cached, about 130 items. With the default of 8,192 orders the cache stays below 128 MiB; without this limit orders of
/// half a megabyte each, which one client may create, would fill 4 GB.
const ORDER_BYTES_MAX: usize = 16 * 1024;

/// Cached orders by id; at capacity the map evicts entries.
pub(crate) struct CachedOrders {
    entries: BoundedMap<OrderId, CachedOrder>,
    ttl: Duration,
    jitter: f64,
}

struct CachedOrder {
    version: u64,
    /// `None` once evicted, for a large order, and for one that may have been committed: then only the version is kept.
    order: Option<Arc<Order>>,
    expires_at: Timestamp,
}

impl CachedOrders {
    pub(crate) fn new(capacity: usize, ttl: Duration, jitter: f64) -> Self {
        Self { entries: BoundedMap::new(capacity), ttl, jitter }
    }

    pub(crate) fn get(&self, id: OrderId, now: Timestamp) -> Option<Arc<Order>> {
        self.entries.read(&id, |cached| cached.order.clone().filter(|_| cached.expires_at > now))
    }

    /// Caches an order that the store had at some time of the last `age`, which is subtracted from its time to live.
    pub(crate) fn put(&self, order: Arc<Order>, age: Duration, now: Timestamp) {
        let (id, version, expires_at) = (order.id, order.version, self.expiry(order.id, age, now));
        let order = Some(order).filter(|order| order_bytes(order) <= ORDER_BYTES_MAX);
        self.entries.update(id, |cached| {
            // A version without an order may never have been committed: refused for longer, the order would never be cached again.
            let may_replace = |cached: &CachedOrder| {
                cached.version <= version || (cached.order.is_none() && cached.expires_at <= now)
            };
            if cached.as_ref().is_none_or(may_replace) {
                *cached = Some(CachedOrder { version, order, expires_at });
            }
        });
    }

    pub(crate) fn refuse_older(&self, id: OrderId, version: u64, now: Timestamp) {
        let expires_at = self.expiry(id, Duration::ZERO, now);
        self.entries.update(id, |cached| {
            // An entry without an order only refuses older versions. Each call renews its time to live; an expired entry is replaced.
            let may_replace = |cached: &CachedOrder| {
                cached.version < version
                    || (cached.order.is_none() && (cached.version == version || cached.expires_at <= now))
            };
            if cached.as_ref().is_none_or(may_replace) {
                let version = cached.as_ref().map_or(version, |cached| cached.version.max(version));
                *cached = Some(CachedOrder { version, order: None, expires_at });
            }
        });
    }

    pub(crate) fn evict(&self, id: OrderId) {
        self.entries.change(&id, |cached| {
            if let Some(cached) = cached {
                cached.order = None;
            }
        });
    }

    pub(crate) fn clear(&self) {
        self.entries.clear();
    }

    /// Spread by the id's own random bits: orders that are cached together do not expire together.
    fn expiry(&self, id: OrderId, age: Duration, now: Timestamp) -> Timestamp {
        let spread = f64::from(id.bytes()[14]) / 255.0;
        now.plus(self.ttl.mul_f64(1.0 - self.jitter * spread).saturating_sub(age))
    }
}

#[cfg(test)]
mod tests {
    use domain::{EventId, Hlc, Item, Items, Money, NewOrder, RegionId, Subject};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn order(version: u64, items: usize) -> Arc<Order> {
        let item = |_| Item::new("tea", 1, Money::parse("1.00").expect("valid")).expect("valid");
        let new = NewOrder {
            id: OrderId::new_v7(NOW, [1; 10]),
            event_id: EventId::new_v7(NOW, [2; 10]),
            owner: Subject::new("ann").expect("valid"),
            items: Items::new((0..items).map(item).collect()).expect("valid"),
            region: RegionId::new("local"),
            now: NOW,
            physical_time: NOW,
            received: Hlc::default(),
        };
        Arc::new(Order { version, ..Order::place(new).0 })
    }

    #[test]
    fn a_large_order_is_not_cached_and_replaces_its_former_version() {
        let cache = CachedOrders::new(4, Duration::from_secs(60), 0.0);
        let (small, large) = (order(0, 100), order(1, 200));
        cache.put(small.clone(), Duration::ZERO, NOW);
        assert_eq!(cache.get(small.id, NOW), Some(small.clone()));

        cache.put(large.clone(), Duration::ZERO, NOW);

        assert_eq!(cache.get(small.id, NOW), None);
        cache.put(small.clone(), Duration::ZERO, NOW);
        assert_eq!(cache.get(small.id, NOW), None, "a slow reader puts no older version back");
        cache.put(order(2, 100), Duration::ZERO, NOW);
        assert_eq!(cache.get(small.id, NOW).map(|order| order.version), Some(2));
    }

    #[test]
    fn the_time_since_an_order_was_read_is_taken_off_its_time_to_live() {
        let cache = CachedOrders::new(4, Duration::from_secs(5), 0.0);
        let (order, at) = (order(0, 1), |seconds| NOW.plus(Duration::from_secs(seconds)));

        cache.put(order.clone(), Duration::from_secs(3), at(3));
        assert_eq!((cache.get(order.id, at(4)), cache.get(order.id, at(5))), (Some(order.clone()), None));

        cache.put(order.clone(), Duration::from_secs(6), at(6));
        assert_eq!(cache.get(order.id, at(6)), None, "the read took longer than the time to live");
    }

    #[test]
    fn a_version_that_was_not_committed_is_forgotten_after_the_time_to_live() {
        let ttl = Duration::from_secs(60);
        let cache = CachedOrders::new(4, ttl, 0.0);
        let (order, later) = (order(0, 1), NOW.plus(ttl));
        cache.refuse_older(order.id, 1, NOW);
        cache.put(order.clone(), Duration::ZERO, NOW);
        assert_eq!(cache.get(order.id, NOW), None, "version 1 may be committed");

        cache.put(order.clone(), Duration::ZERO, later);

        assert_eq!(cache.get(order.id, later), Some(order));
    }

    #[test]
    fn a_version_is_refused_for_the_whole_time_to_live_of_the_last_call() {
        let ttl = Duration::from_secs(60);
        let (order, renewed, late) = (order(0, 1), NOW.plus(ttl / 2), NOW.plus(ttl + ttl / 4));
        let cached_after_two_refusals = |first: u64, second: Timestamp, read: Timestamp| {
            let cache = CachedOrders::new(4, ttl, 0.0);
            cache.refuse_older(order.id, first, NOW);
            cache.refuse_older(order.id, 1, second);
            cache.put(order.clone(), Duration::ZERO, read);
            cache.get(order.id, read)
        };

        assert_eq!(cached_after_two_refusals(1, renewed, late), None, "the same version again");
        assert_eq!(cached_after_two_refusals(1, late, late), None, "after the first entry has expired");
        assert_eq!(
            cached_after_two_refusals(2, late, late),
            None,
            "after the first entry has expired, although it had a higher version"
        );
    }
}
