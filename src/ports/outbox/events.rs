//! Events that services without access to the store's tables hand over: a batch commits together, each event once.
use std::sync::Arc;

use ::outbox::EventKey;
use async_trait::async_trait;
use domain::{EventId, Timestamp};

use crate::error::Error;
use crate::event_headers::EventHeaders;
use crate::orders::{IdempotencyRecord, NewRow, TraceContext};
use crate::partitions::PartitionNo;

/// An event of another service, before the store has assigned its sequence number among the events of its key.
#[derive(Clone, Debug)]
pub struct ExternalEvent {
    /// Identifies the event; an id that was published before, as far as the archive reaches, is published once.
    pub event_id: EventId,
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Record key; events of one key are published in the order of their commits.
    pub key: EventKey,
    /// Type of the event.
    pub event_type: Arc<str>,
    /// Outbox partition of the key.
    pub partition: PartitionNo,
    /// Record value, published unchanged.
    pub payload: Arc<[u8]>,
    /// Headers that the writer adds to the record.
    pub headers: EventHeaders,
    /// Media type of the payload; `None` is `application/json`.
    pub content_type: Option<Arc<str>>,
    /// W3C trace context of the request, published unchanged.
    pub trace: Option<TraceContext>,
    /// Id of the request that handed the event over.
    pub request_id: Option<Arc<str>>,
}

impl ExternalEvent {
    /// The outbox row, once the store has assigned the event's sequence number among those of its key and topic, from 1.
    pub fn into_row(self, sequence: u64, occurred_at: Timestamp) -> NewRow {
        NewRow {
            event_id: self.event_id,
            key: self.key,
            event_type: self.event_type,
            topic: self.topic,
            partition: self.partition,
            payload: self.payload,
            sequence,
            occurred_at,
            stamp: None,
            trace: self.trace,
            request_id: self.request_id,
            headers: self.headers,
            content_type: self.content_type,
            contract_checksum: None,
        }
    }
}

/// Events that commit together or not at all.
#[derive(Clone, Debug)]
pub struct EventBatch {
    /// The events; those of one key are published in this order.
    pub events: Vec<ExternalEvent>,
    /// Durable record of the idempotency key, if the client sent one. Its order id is the id of the first event.
    pub idempotency_record: Option<IdempotencyRecord>,
}

/// Result of an [`EventBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventBatchOutcome {
    /// All events are durable.
    Done {
        /// For each event whether it is new; one that was published before is left as it is.
        is_new: Vec<bool>,
    },
    /// Nothing changed: the subject used this key before, as this record shows.
    KeyUsed(IdempotencyRecord),
}

/// Writes events of other services to the outbox of one store.
#[async_trait]
pub trait EventStore: Send + Sync {
    /// Writes the events and the record in one transaction, or none. Claims see the rows once it returns. A sequence has no gaps: an event that was
    /// published before gets no number. Not cancel-safe: a dropped call may still commit.
    ///
    /// # Errors
    /// [`Error::Unknown`] when the outcome is unknown: a repetition with the same event ids publishes each event once. Every other error means that
    /// nothing changed.
    async fn publish(&self, batch: EventBatch) -> Result<EventBatchOutcome, Error>;
}
