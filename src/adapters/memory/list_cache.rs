//! Cached lists in memory. A list has the generation of its scope; an eviction begins another one, and the old lists are invalid.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use domain::{Subject, Timestamp};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, ListScope};

use crate::bounded::BoundedMap;

/// Lists by key; at its limit of bytes the least recently used is dropped.
pub(crate) struct CachedLists {
    lists: Cache<ListKey, Arc<CurrentList>>,
    /// A scope that this map has evicted gets a new generation, so that its old lists stay invalid.
    generations: BoundedMap<ListScope, u64>,
    last_generation: AtomicU64,
    ttl: Duration,
    jitter: f64,
}

struct CurrentList {
    generation: u64,
    list: CachedList,
    expires_at: Timestamp,
}

impl CachedLists {
    pub(crate) fn new(bytes_max: u64, scopes_max: usize, ttl: Duration, jitter: f64) -> Self {
        let weight = |_: &ListKey, current: &Arc<CurrentList>| u32::try_from(current.list.bytes()).unwrap_or(u32::MAX);
        Self {
            lists: Cache::builder()
                .max_capacity(bytes_max)
                .weigher(weight)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            generations: BoundedMap::new(scopes_max),
            last_generation: AtomicU64::new(0),
            ttl,
            jitter,
        }
    }

    pub(crate) fn get(&self, key: &ListKey, now: Timestamp) -> ListLookup {
        let next = || self.next_generation();
        let generation = self.generations.update(key.scope.clone(), |known| *known.get_or_insert_with(next));
        let current =
            self.lists.get(key).filter(|current| current.generation == generation && current.expires_at > now);
        ListLookup { generation: ListGeneration(generation), found: current.map(|current| current.list.clone()) }
    }

    pub(crate) fn put(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: CachedList,
        age: Duration,
        now: Timestamp,
    ) {
        let ListGeneration(generation) = generation;
        // An eviction after this check is harmless: the list then has an old generation.
        if self.generations.read(&key.scope, |known| Some(*known)) == Some(generation) {
            let current = CurrentList { generation, list, expires_at: self.expiry(generation, age, now) };
            self.lists.insert(key.clone(), Arc::new(current));
        }
    }

    pub(crate) fn evict(&self, owner: &Subject) {
        for scope in [ListScope::Owner(owner.clone()), ListScope::All] {
            self.generations.update(scope, |known| *known = Some(self.next_generation()));
        }
    }

    /// Every scope gets a new generation with its next lookup.
    pub(crate) fn clear(&self) {
        self.generations.clear();
        self.lists.invalidate_all();
    }

    fn next_generation(&self) -> u64 {
        self.last_generation.fetch_add(1, Relaxed) + 1
    }

    /// Spread by the number of the generation: scopes that are read together do not expire together.
    fn expiry(&self, generation: u64, age: Duration, now: Timestamp) -> Timestamp {
        let spread = (generation % 16) as f64 / 15.0;
        now.plus(self.ttl.mul_f64(1.0 - self.jitter * spread).saturating_sub(age))
    }
}
