//! A cache of orders and of lists of them. It may fail or evict at any time; while it holds a version of an order it never returns an older
//! one, and it never returns a list from before a change whose lists were evicted.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Status, Subject};

use super::page_start::PageStart;
use crate::error::Error;

/// Orders that were recently read or changed.
#[async_trait]
pub trait OrderCache: Send + Sync {
    /// Returns the order, if it is cached.
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error>;

    /// Caches an order unless a newer version of it is cached. The adapter's options set the time to live, with jitter. A cache that the changes of
    /// other instances do not reach subtracts `age` from it: the time since before the store was called. A cache may leave out a large order (above
    /// 16 KiB); an older version of it is then removed too.
    async fn put(&self, order: Arc<Order>, age: Duration) -> Result<(), Error>;

    /// Removes an order from the cache.
    async fn evict(&self, id: OrderId) -> Result<(), Error>;

    /// Removes what is older than this version of an order, and refuses to cache it for the time to live of an entry: a commit whose outcome
    /// is unknown may take effect after a reader has read the version before it.
    async fn refuse_older(&self, id: OrderId, version: u64) -> Result<(), Error>;

    /// Returns a list, if it is cached, and the generation of its scope, which belongs to a later [`OrderCache::put_list`].
    async fn get_list(&self, key: &ListKey) -> Result<ListLookup, Error>;

    /// Caches a list that was read from the store after the lookup returned this generation. Does nothing when the lists of the scope were
    /// evicted since: the list may be from before the change. `age` is as in [`OrderCache::put`].
    async fn put_list(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: CachedList,
        age: Duration,
    ) -> Result<(), Error>;

    /// Evicts the lists of an owner and those of all orders. A change calls it after its commit and before its reply.
    async fn evict_lists(&self, owner: &Subject) -> Result<(), Error>;

    /// Removes every order and list from the cache: the store was rewound, so a cached version may be one that it has lost. After an
    /// error this process serves nothing that was cached before; other processes that share the cache may.
    async fn evict_all(&self) -> Result<(), Error>;
}

/// The owner of the orders in a list. Scopes share no entry, so that a caller never receives a list of another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListScope {
    /// Orders of one owner.
    Owner(Subject),
    /// Orders of all owners, for administrators.
    All,
}

/// A query of the orders of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListQuery {
    /// A chunk of a list: the orders from `from` on.
    Chunk {
        /// Only orders with this status.
        status: Option<Status>,
        /// Start of the chunk.
        from: PageStart,
        /// Most orders of the chunk.
        limit: u32,
    },
    /// The number of orders.
    Count {
        /// Only orders with this status.
        status: Option<Status>,
    },
}

/// Identifies a cached list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListKey {
    /// The owner of the orders in the list.
    pub scope: ListScope,
    /// The query that the list is the result of.
    pub query: ListQuery,
}

/// The result of a [`ListQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedList {
    /// Orders of a chunk, newest first.
    Chunk(Arc<[Order]>),
    /// The number of orders.
    Count(u64),
}

impl CachedList {
    /// Approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            CachedList::Chunk(orders) => orders.iter().map(order_bytes).sum(),
            CachedList::Count(_) => 16,
        }
    }
}

/// Approximate size of an order in memory, in bytes: its ids, names and item list; 96 bytes for an item and the allocation of its name.
pub fn order_bytes(order: &Order) -> usize {
    256 + order.items.as_slice().iter().map(|item| 96 + item.name().len()).sum::<usize>()
}

/// Number of evictions of a scope's lists: a list that was read under an earlier generation must not be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListGeneration(pub u64);

/// The result of looking a list up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLookup {
    /// Generation of the scope at the time of the lookup.
    pub generation: ListGeneration,
    /// The list, if it is cached.
    pub found: Option<CachedList>,
}
