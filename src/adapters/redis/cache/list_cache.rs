//! Cached lists on Redis: a hash for each scope, with a field for each list and the field `g`, the generation. A change deletes the hash.
//!
//! A reader takes the generation with its lookup and reads the store after it. A change in between deletes the hash, the next lookup
//! begins another generation, and the reader's list is refused. Like an order, a list counts only under the epoch of its writer: see
//! [`crate::cache::order_cache`].
use deadpool_redis::redis;
use domain::{Order, Status, Subject};
use ports::Error;
use ports::orders::PageStart;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, ListQuery, ListScope};

use crate::cache::order_cache::{WriteGuard, shortened};
use crate::connection::call::{Caller, Request, single};
use crate::connection::client::RedisInner;
use crate::orders::order_json;

/// Lists of one scope. A caller that turns many pages fills it; further pages are read from the store.
const LISTS_MAX: u32 = 64;

impl RedisInner {
    pub(crate) async fn find_list(&self, key: &ListKey) -> Result<ListLookup, Error> {
        self.require_valid_cache()?;
        let ttl = shortened(self.options.list_ttl, self.options.cache_jitter * self.options.rng.fraction());
        let mut get = self.scripts.cache_get_list.prepare_invoke();
        get.key(self.keys.lists(&key.scope)).key(self.keys.epoch()).arg(field(key.query)).arg(ttl);
        let (epoch, generation, text): (Option<u64>, u64, Option<String>) =
            self.call(Caller::Cache, "read a cached list", Request::Script(&get)).await?;
        let is_current = self.observe_epoch(epoch);
        // A reason to invalidate may have occurred while the reply was in transit.
        self.require_valid_cache()?;
        let found = text.filter(|_| is_current).and_then(|text| parse(&text, key));
        Ok(ListLookup { generation: ListGeneration(generation), found })
    }

    pub(crate) async fn put_list(
        &self,
        key: &ListKey,
        generation: ListGeneration,
        list: &CachedList,
    ) -> Result<(), Error> {
        let Some(writer_epoch) = self.epoch_for_writes() else { return Ok(()) };
        let text = format(list).ok_or_else(|| Error::Rejected("the list cannot be serialised".into()))?;
        let mut put = self.scripts.cache_put_list.prepare_invoke();
        put.key(self.keys.lists(&key.scope)).key(self.keys.epoch());
        put.arg(generation.0).arg(field(key.query)).arg(text).arg(writer_epoch).arg(LISTS_MAX);
        let epoch: Option<u64> = self.call(Caller::Cache, "cache a list", Request::Script(&put)).await?;
        self.observe_epoch(epoch);
        Ok(())
    }

    pub(crate) async fn evict_lists(&self, owner: &Subject) -> Result<(), Error> {
        let guard = WriteGuard::new(self);
        let mut delete = redis::cmd("DEL");
        delete.arg(self.keys.lists(&ListScope::Owner(owner.clone()))).arg(self.keys.lists(&ListScope::All));
        let _: (i64,) = self.call(Caller::Cache, "evict lists", Request::Pipeline(&single(delete))).await?;
        guard.disarm();
        Ok(())
    }
}

/// The field of a list in its scope's hash.
fn field(query: ListQuery) -> String {
    let name = |status: Option<Status>| status.map_or("", Status::as_str);
    match query {
        ListQuery::Count { status } => format!("count:{}", name(status)),
        ListQuery::Chunk { status, from: PageStart::Offset(skip), limit } => {
            format!("part:{}:skip {skip}:{limit}", name(status))
        }
        ListQuery::Chunk { status, from: PageStart::After(id), limit } => {
            format!("part:{}:after {id}:{limit}", name(status))
        }
    }
}

/// A count is a number; a chunk has one order per line.
fn format(list: &CachedList) -> Option<String> {
    match list {
        CachedList::Count(count) => Some(count.to_string()),
        CachedList::Chunk(orders) => {
            let lines: Option<Vec<String>> = orders.iter().map(order_json::format).collect();
            lines.map(|lines| lines.join("\n"))
        }
    }
}

/// The list in a text; `None` if the text is not that of an answer to this query, which is a cache miss. The owner is checked once more: a
/// list must never show orders of another one.
fn parse(text: &str, key: &ListKey) -> Option<CachedList> {
    let belongs = |order: &Order| match &key.scope {
        ListScope::Owner(owner) => order.owner == *owner,
        ListScope::All => true,
    };
    match key.query {
        ListQuery::Count { .. } => text.parse().ok().map(CachedList::Count),
        ListQuery::Chunk { .. } => {
            let orders: Option<Vec<Order>> =
                text.lines().map(|line| order_json::parse(line).filter(|order| belongs(order))).collect();
            orders.map(|orders| CachedList::Chunk(orders.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::OrderId;

    use super::*;

    #[test]
    fn each_query_has_a_field_of_its_own() {
        let id = OrderId::from_bytes([1; 16]);
        let part = |status, from, limit| ListQuery::Chunk { status, from, limit };
        let queries = [
            ListQuery::Count { status: None },
            ListQuery::Count { status: Some(Status::Pending) },
            part(None, PageStart::Offset(0), 16),
            part(None, PageStart::Offset(0), 17),
            part(None, PageStart::Offset(1), 16),
            part(None, PageStart::After(id), 16),
            part(Some(Status::Pending), PageStart::Offset(0), 16),
        ];
        let fields: std::collections::BTreeSet<String> = queries.into_iter().map(field).collect();

        assert_eq!(fields.len(), queries.len());
        assert!(!fields.contains("g"), "the field of the generation");
    }

    #[test]
    fn text_of_another_form_is_a_miss() {
        let count = ListKey { scope: ListScope::All, query: ListQuery::Count { status: None } };
        let part =
            ListKey { query: ListQuery::Chunk { status: None, from: PageStart::Offset(0), limit: 1 }, ..count.clone() };

        assert_eq!(parse("7", &count), Some(CachedList::Count(7)));
        assert_eq!(parse("7", &part), None);
        assert_eq!(parse("[]", &count), None);
        assert_eq!(parse("", &part), Some(CachedList::Chunk(Vec::new().into())));
    }
}
