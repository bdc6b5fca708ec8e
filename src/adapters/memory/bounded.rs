//! A bounded map whose entries are changed one caller at a time.
use std::hash::{Hash, RandomState};

use hashlink::LruCache;
use parking_lot::Mutex;

/// At most `capacity` entries. The least recently used one is evicted, never the new one, which its caller is about to use. One lock for all keys,
/// because it is held for less than a microsecond; a concurrent map adds several microseconds to a create.
pub(crate) struct BoundedMap<K, V> {
    entries: Mutex<LruCache<K, Option<V>, RandomState>>,
}

impl<K: Hash + Eq, V> BoundedMap<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: Mutex::new(LruCache::with_hasher(capacity.max(1), RandomState::new())) }
    }

    /// Reads an entry, without creating it.
    pub(crate) fn read<R>(&self, key: &K, read: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        self.entries.lock().get(key)?.as_ref().and_then(read)
    }

    /// Changes an entry if it exists.
    pub(crate) fn change(&self, key: &K, change: impl FnOnce(&mut Option<V>)) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            change(entry);
        }
    }

    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }

    /// Changes an entry, which is `None` if it did not exist. Callers take turns.
    pub(crate) fn update<R>(&self, key: K, update: impl FnOnce(&mut Option<V>) -> R) -> R {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&key) {
            return update(entry);
        }
        let mut entry = None;
        let result = update(&mut entry);
        entries.insert(key, entry);
        result
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
            assert_eq!(map.read(&0, |value| Some(*value)), Some(0), "after {number}");
        }

        assert_eq!(map.read(&50, |value| Some(*value)), None);
        assert_eq!(map.read(&99, |value| Some(*value)), Some(99));
    }
}
