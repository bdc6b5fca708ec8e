//! The inbox: consumed events (`processed_events`), and the effects that commit in the same transaction.
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Hlc, OrderId, RegionId};

use crate::broker::Position;
use crate::error::Error;

/// A consumed event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessedEvent {
    /// Id of the event; a second delivery with the same id is a duplicate.
    pub event_id: EventId,
    /// Topic position of the message.
    pub position: Position,
    /// Changes that commit together with the record.
    pub effects: Vec<Effect>,
}

/// A state change that a handler requests, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Stores the stamp of an update by another region that won.
    StoreRemoteStamp {
        /// Order that was updated.
        order_id: OrderId,
        /// Region that made the update.
        region: RegionId,
        /// Stamp of the update.
        hlc: Hlc,
    },
}

/// Result of recording one consumed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxOutcome {
    /// The event was new; its effects are committed.
    New,
    /// The event was recorded before, possibly by a concurrent consumer; nothing was changed and the message may be acknowledged.
    Duplicate,
}

/// Stamp of the last update of an order by another region that won against this region's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteStamp {
    /// Region that made the update.
    pub region: RegionId,
    /// Stamp of the update.
    pub hlc: Hlc,
}

/// Inbox of a consumer group.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Records all events and applies their effects in one transaction; returns a result for each, in order. A duplicate does not affect
    /// the other events.
    async fn commit(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error>;

    /// Reads the stamp of the last update of an order by another region that won.
    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error>;

    /// Reads the retry route of a key: while one exists, the key's later messages pass through the same retry topics, up to `stage`, so that none
    /// overtakes the first one.
    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error>;

    /// Begins, extends or ends retry routes, all of them or none. A change that is repeated or that arrives late ends no route early.
    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error>;

    /// Deletes at most `limit` records older than `keep` and returns the number deleted.
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error>;
}

/// The retry topics through which the messages of a key pass in order, because an earlier message of the key is being retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRoute {
    /// Highest number of a retry topic that a message of the key was sent to, from 0. Grows by one with each further round through the last topic.
    pub stage: u32,
    /// The last of the key's messages that were sent to retry topics, by its offset before its first failure.
    pub last: u64,
}

/// A change of one key's retry route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryRouteChange {
    /// A message of the key is sent to a retry topic, for the first time or again.
    Enter {
        /// The key, as one topic partition has it.
        key: String,
        /// Number of the retry topic, from 0; one more for each further round through the last topic.
        stage: u32,
        /// The message, by its offset before it was first sent to a retry topic.
        offset: u64,
    },
    /// A message of the key was consumed or dead-lettered, and all earlier ones with it. The route ends if it was the last one.
    Leave {
        /// The key, as one topic partition has it.
        key: String,
        /// The message, by its offset before it was first sent to a retry topic.
        offset: u64,
    },
}
