//! A bounded map whose entries are changed one caller at a time.
use std::hash::Hash;
use std::sync::Arc;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;

/// At most about `capacity` entries; the least recently used is dropped first. Least recently used, and not moka's frequency sketch: under
/// that policy a full map refuses new keys, and a new key is the one that a caller is about to use.
pub(crate) struct BoundedMap<K, V> {
    entries: Cache<K, Arc<Mutex<Option<V>>>>,
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static> BoundedMap<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = u64::try_from(capacity).unwrap_or(u64::MAX).max(1);
        Self { entries: Cache::builder().max_capacity(capacity).eviction_policy(EvictionPolicy::lru()).build() }
    }

    /// Reads an entry, without creating it.
    pub(crate) fn read<R>(&self, key: &K, read: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        self.entries.get(key)?.lock().as_ref().and_then(read)
    }

    /// Changes an entry that exists; does nothing where it does not.
    pub(crate) fn change(&self, key: &K, change: impl FnOnce(&mut Option<V>)) {
        if let Some(entry) = self.entries.get(key) {
            change(&mut entry.lock());
        }
    }

    /// Changes an entry, which is `None` where it did not exist. Callers with the same key take turns.
    pub(crate) fn update<R>(&self, key: K, update: impl FnOnce(&mut Option<V>) -> R) -> R {
        let entry = self.entries.get_with(key, || Arc::new(Mutex::new(None)));
        update(&mut entry.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_drops_the_least_recently_used_entry() {
        let map = BoundedMap::new(4);

        for number in 0..100 {
            map.update(number, |entry| *entry = Some(number));
            map.update(0, |entry| *entry = Some(0));
            map.entries.run_pending_tasks();
            assert_eq!(map.read(&0, |value| Some(*value)), Some(0), "after {number}");
        }

        assert_eq!(map.read(&50, |value| Some(*value)), None);
        assert_eq!(map.read(&99, |value| Some(*value)), Some(99));
    }
}
