//! A map with two generations: bounded, and what was not asked for a whole generation is forgotten first. No list to keep in order.
use std::collections::HashMap;
use std::hash::Hash;

/// At most `capacity` entries, give or take none.
pub(crate) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq + Clone, V> Generations<K, V> {
    /// An empty map.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (capacity / 2).max(1) }
    }

    /// The entry of a key; being asked for keeps it young.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if let Some(value) = self.old.remove(key) {
            self.put(key.clone(), value);
        }
        self.young.get_mut(key)
    }

    /// Sets the entry of a key.
    pub(crate) fn put(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Forgets the entry of a key.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let old = self.old.remove(key);
        self.young.remove(key).or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut map = Generations::new(4);

        for number in 0..100 {
            map.put(number, number);
            assert_eq!(map.get_mut(&0).copied(), Some(0), "after {number}");
            assert!(map.young.len() + map.old.len() <= 4);
        }
        assert_eq!(map.get_mut(&50), None);
    }
}
