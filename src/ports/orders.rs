//! Where orders live. State, events and idempotency mark commit together or not at all; no transaction handle crosses this port.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, EventType, Hlc, Order, OrderId, RegionId, Status, Subject, Timestamp, Version};

use crate::error::Error;
use crate::partitions::PartitionNo;

/// One atomic change: the order's new state, the events that tell of it, and the client's name for the intent.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The order afterwards.
    pub order: Order,
    /// `None` inserts; `Some(v)` replaces the order only where it still stands at version v.
    pub expected: Option<Version>,
    /// Rows for the outbox, in the order in which they happened.
    pub events: Vec<NewRow>,
    /// The durable second line of idempotency.
    pub mark: Option<IdempotencyMark>,
}

/// An event on its way into the outbox.
#[derive(Clone, Debug)]
pub struct NewRow {
    /// The event's own name.
    pub event_id: EventId,
    /// Its key: the order's id.
    pub key: OrderId,
    /// What happened.
    pub kind: EventType,
    /// Where it will be published, without prefix games: the full topic name.
    pub topic: Arc<str>,
    /// The share of keys this key belongs to.
    pub partition: PartitionNo,
    /// The encoded value, final.
    pub payload: Arc<[u8]>,
    /// Place in the key's line, from 1, gapless.
    pub sequence: u64,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// The region it happened in.
    pub region: RegionId,
    /// Its stamp.
    pub hlc: Hlc,
    /// W3C trace context of the request, passed on unchanged.
    pub trace: Option<TraceContext>,
}

/// W3C trace context, already judged well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`.
    pub parent: Arc<str>,
    /// `tracestate`, if there was one.
    pub state: Option<Arc<str>>,
}

/// A client's name for one intent to create, scoped to who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyMark {
    /// Who asked.
    pub subject: Subject,
    /// The idempotency key, 1…128 characters.
    pub key: Arc<str>,
    /// SHA-256 of what was asked, as parsed.
    pub fingerprint: [u8; 32],
    /// The order that came of it.
    pub order_id: OrderId,
}

/// What became of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All of it is durable.
    Done,
    /// Nothing changed: the order stands at another version.
    Stale {
        /// The version it has.
        current: Version,
    },
    /// Nothing changed: there is no such order.
    Missing,
    /// Nothing changed: this subject used this key before; here is what it then meant.
    KeyUsed(IdempotencyMark),
}

/// Which orders to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderFilter {
    /// Only those of this owner.
    pub owner: Option<Subject>,
    /// Only those in this state.
    pub status: Option<Status>,
}

/// Where a page begins. Newest first by (created_at, id); ids carry created_at, so the id alone is the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// Skip so many.
    Offset(u64),
    /// Strictly older than this id, whoever's it is, whether it exists or not.
    After(OrderId),
}

/// The orders of one service.
#[async_trait]
pub trait OrderStore: Send + Sync {
    /// Commits all parts in one transaction, or none. A due event row is visible to claims from then on.
    /// Concurrent commits may share a transaction of the store; one that fails takes no neighbour with it.
    /// Cancel-safe in that a dropped call may still commit: whoever drops it no longer knows the outcome.
    ///
    /// # Errors
    /// [`Error::Unknown`] when the outcome is not known; every other error means that nothing changed.
    async fn commit(&self, commit: Commit) -> Result<Committed, Error>;

    /// One order, as committed at the time of the call or later.
    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error>;

    /// At most `limit` orders, newest first.
    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error>;

    /// How many orders the filter lets through.
    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error>;

    /// At most `limit` ids of orders in a state, oldest first, strictly after `after`: what a bounded sweep walks along.
    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error>;

    /// What this subject's key meant before, if it is not older than `keep`.
    async fn find_mark(&self, subject: &Subject, key: &str, keep: Duration) -> Result<Option<IdempotencyMark>, Error>;

    /// Forgets at most `limit` marks older than `keep`; says how many.
    async fn sweep_marks(&self, keep: Duration, limit: u32) -> Result<u64, Error>;
}
