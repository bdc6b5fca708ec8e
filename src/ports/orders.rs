//! The order store. State, events and idempotency record commit together or not at all; no transaction handle crosses this port.
use std::sync::Arc;
use std::time::Duration;

use ::outbox::EventKey;
use async_trait::async_trait;
use domain::{EventId, EventType, Hlc, Order, OrderId, RegionId, Status, Subject, Timestamp, Version};

use crate::error::Error;
use crate::event_headers::EventHeaders;
use crate::partitions::PartitionNo;

pub mod cache;
pub mod idempotency;
mod page_start;
mod stored_items;

pub use page_start::PageStart;
pub use stored_items::{format_items, parse_items};

/// One atomic change: the order's new state, the events that record it, and the idempotency record.
#[derive(Clone, Debug)]
pub struct Commit {
    /// State of the order after the change.
    pub order: Order,
    /// `None` inserts the order; `Some(v)` replaces it only if it is at version v.
    pub expected: Option<Version>,
    /// Outbox rows in the order of their events.
    pub events: Vec<NewRow>,
    /// Durable record of the idempotency key, if the client sent one.
    pub idempotency_record: Option<IdempotencyRecord>,
}

/// An outbox row to insert.
#[derive(Clone, Debug)]
pub struct NewRow {
    /// Event that the row publishes.
    pub event_id: EventId,
    /// Record key; the order id, for an order's event.
    pub key: EventKey,
    /// Type of the event.
    pub event_type: Arc<str>,
    /// Full name of the topic, including the configured prefix.
    pub topic: Arc<str>,
    /// Outbox partition of the key.
    pub partition: PartitionNo,
    /// Encoded value, published unchanged.
    pub payload: Arc<[u8]>,
    /// Position among the events of the key in its topic, from 1, without gaps.
    pub sequence: u64,
    /// Time of the change.
    pub occurred_at: Timestamp,
    /// Region and HLC stamp of the change; `None` for events of other services.
    pub stamp: Option<RegionStamp>,
    /// W3C trace context of the request, published unchanged.
    pub trace: Option<TraceContext>,
    /// Id of the request that made the change.
    pub request_id: Option<Arc<str>>,
    /// Headers that the writer adds to the record.
    pub headers: EventHeaders,
    /// Media type of the payload; `None` is `application/json`.
    pub content_type: Option<Arc<str>>,
    /// The codec's checksum of the payload, by which the relay recognises a value that it need not parse again. `None` for a value that
    /// another program encoded. A store may drop it: then the value is checked in full.
    pub contract_checksum: Option<u32>,
}

/// The stamp of a change in one of several regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionStamp {
    /// Region that made the change.
    pub region: RegionId,
    /// Hybrid logical clock stamp of the change.
    pub hlc: Hlc,
}

/// The record key of an order's events.
pub fn event_key(order: OrderId) -> EventKey {
    EventKey::from_uuid(order.bytes())
}

/// The order of an event: `None` for the types of other services.
pub fn order_of_event(event_type: &str, key: &EventKey) -> Option<OrderId> {
    EventType::parse(event_type).and_then(|_| OrderId::parse(&key.to_text()))
}

/// W3C trace context that was checked to be well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Value of the `traceparent` header.
    pub parent: Arc<str>,
    /// Value of the `tracestate` header, if present.
    pub state: Option<Arc<str>>,
}

/// Durable record of a used idempotency key, scoped to its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// Subject that sent the request.
    pub subject: Subject,
    /// The idempotency key, 1…128 characters.
    pub key: Arc<str>,
    /// SHA-256 of the request as parsed.
    pub fingerprint: [u8; 32],
    /// Order that the request created; for events of another service, the id of the first event.
    pub order_id: OrderId,
}

/// Result of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// All parts are durable.
    Done,
    /// Nothing changed: the order is at another version.
    Stale {
        /// Present version of the order.
        current: Version,
    },
    /// Nothing changed: the order does not exist.
    Missing,
    /// Nothing changed: the subject used this key before, as this record shows.
    KeyUsed(IdempotencyRecord),
}

/// Conditions that listed orders meet; `None` matches every order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderFilter {
    /// Orders of this owner.
    pub owner: Option<Subject>,
    /// Orders with this status.
    pub status: Option<Status>,
}

/// Stored size of the items after which [`OrderStore::list`] stops, in bytes. It bounds what one call holds in memory: orders in memory are
/// up to six times as large as their stored text.
pub const LIST_BYTES: usize = 256 * 1024;

/// Decides where a list ends before its limit of rows.
#[derive(Debug, Default)]
pub struct ListBudget {
    bytes: usize,
}

impl ListBudget {
    /// Counts an order that the list contains, by its stored size; false when it is the list's last one.
    pub fn add(&mut self, stored_bytes: usize) -> bool {
        self.bytes += stored_bytes;
        self.bytes < LIST_BYTES
    }
}

/// The orders table of one store.
#[async_trait]
pub trait OrderStore: Send + Sync {
    /// Commits all parts in one transaction, or none. Claims see the event rows once it returns.
    /// Concurrent commits may share a transaction of the store; the failure of one does not affect the others.
    /// Not cancel-safe: a dropped call may still commit.
    ///
    /// # Errors
    /// [`Error::Unknown`] when the outcome is unknown; every other error means that nothing changed.
    async fn commit(&self, commit: Commit) -> Result<CommitOutcome, Error>;

    /// Reads an order as committed at the time of the call or later.
    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error>;

    /// Lists at most `limit` orders, newest first. It stops after the order with which their size reaches [`LIST_BYTES`], so a shorter list is
    /// not a sign of the end; an empty one is.
    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error>;

    /// Counts the orders that match the filter.
    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error>;

    /// Lists at most `limit` ids of orders with this status, oldest first and after `after`, for bounded scans.
    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error>;

    /// Reads the record of this subject's key, if it is not older than `keep`.
    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error>;

    /// Deletes at most `limit` records older than `keep` and returns the number deleted.
    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error>;
}
