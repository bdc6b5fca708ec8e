//! Puts events of other services into the outbox: check the gate, give each event its id and its partition, commit all at once.
use std::sync::Arc;

use domain::{EventId, OrderId, Subject};
use ports::orders::IdempotencyRecord;
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore, ExternalEvent};
use ports::partitions::PartitionNo;
use sha2::{Digest, Sha256};

use super::context::{CommandContext, CommitProgress};
use crate::dispatch::{AcceptedEvent, EventsPublished, IdempotencyKey, PublishEvents, SubmittedEvent};
use crate::error::CommandError;

/// Result of publishing, with the partitions that have new rows.
#[derive(Clone, Debug)]
pub struct PublishEventsOutcome {
    /// The reply to the client.
    pub published: EventsPublished,
    /// Partitions of the new rows; each may occur several times.
    pub partitions: Vec<PartitionNo>,
}

/// SHA-256 of the events as parsed: neither the order of JSON members nor the form of the request counts.
pub fn fingerprint(events: &[SubmittedEvent]) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut put = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    put(b"events");
    for event in events {
        put(event.event_id.map(|id| id.bytes()).as_ref().map_or(&[], |id| id));
        put(event.topic.as_bytes());
        put(event.key.to_text().as_bytes());
        put(event.event_type.as_bytes());
        put(&event.payload);
        put(event.headers.to_json().unwrap_or_default().as_bytes());
        put(event.content_type.as_deref().unwrap_or("application/json").as_bytes());
    }
    hash.finalize().into()
}

/// Publishes events in one transaction, once per idempotency key and once per event id.
///
/// # Errors
/// Every [`CommandError`] but `Unknown` means that nothing was changed and that the key can be used again.
pub async fn publish_events(
    context: &CommandContext,
    store: &dyn EventStore,
    command: PublishEvents,
    progress: &CommitProgress,
) -> Result<PublishEventsOutcome, CommandError> {
    context.gate.check().map_err(CommandError::Gated)?;
    let PublishEvents { subject, events, idempotency_key, request_id, .. } = command;
    let events: Vec<ExternalEvent> = (0..)
        .zip(events)
        .map(|(index, event)| {
            let event_id = event.event_id.unwrap_or_else(|| match &idempotency_key {
                Some(idempotency_key) => keyed_id(&subject, idempotency_key, index),
                None => context.event_id(context.clock.now()),
            });
            external_event(event, event_id, context.options.partitions, request_id.clone())
        })
        .collect();
    let ids: Vec<EventId> = events.iter().map(|event| event.event_id).collect();
    let partitions: Vec<PartitionNo> = events.iter().map(|event| event.partition).collect();
    let idempotency_record = idempotency_key.as_ref().map(|idempotency_key| IdempotencyRecord {
        subject,
        key: Arc::clone(&idempotency_key.key),
        fingerprint: idempotency_key.fingerprint,
        order_id: OrderId::from_bytes(ids.first().map_or([0; 16], |id| id.bytes())),
    });
    let call = progress.begin_commit()?;
    let published = store.publish(EventBatch { events, idempotency_record }).await;
    drop(call);
    if !matches!(&published, Ok(EventBatchOutcome::Done { .. }))
        && !matches!(&published, Err(error) if error.outcome_unknown())
    {
        progress.nothing_changed();
    }
    match published? {
        EventBatchOutcome::Done { is_new } => {
            let partitions = partitions.into_iter().zip(&is_new).filter(|(_, is_new)| **is_new);
            let partitions = partitions.map(|(partition, _)| partition).collect();
            let events = ids.into_iter().zip(is_new).map(|(id, is_new)| AcceptedEvent { id, is_new }).collect();
            Ok(PublishEventsOutcome { published: EventsPublished { events, replayed: false }, partitions })
        }
        EventBatchOutcome::KeyUsed(idempotency_record)
            if idempotency_key
                .is_some_and(|idempotency_key| idempotency_key.fingerprint == idempotency_record.fingerprint) =>
        {
            let events = ids.into_iter().map(|id| AcceptedEvent { id, is_new: false }).collect();
            Ok(PublishEventsOutcome { published: EventsPublished { events, replayed: true }, partitions: Vec::new() })
        }
        EventBatchOutcome::KeyUsed(_) => Err(CommandError::KeyReused),
    }
}

/// The id of an event without one in a request with a key: the same in every repetition, so that the response is the same too. The archive may
/// outlive the key's record, and other events under the same key must not have the ids of archived ones: the fingerprint separates them.
fn keyed_id(subject: &Subject, idempotency_key: &IdempotencyKey, index: u64) -> EventId {
    let mut hash = Sha256::new();
    for part in [subject.as_str(), &idempotency_key.key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(idempotency_key.fingerprint);
    hash.update(index.to_be_bytes());
    uuid_of_digest(&hash.finalize().into())
}

/// The first 16 bytes of a digest as a UUID of version 8, which RFC 9562 leaves to each application.
pub fn uuid_of_digest(digest: &[u8; 32]) -> EventId {
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id[6] = (id[6] & 0x0f) | 0x80;
    id[8] = (id[8] & 0x3f) | 0x80;
    EventId::from_bytes(id)
}

fn external_event(
    event: SubmittedEvent,
    event_id: EventId,
    partitions: u32,
    request_id: Option<Arc<str>>,
) -> ExternalEvent {
    let partition = outbox::partition::of_key(&event.key.to_text(), partitions);
    let SubmittedEvent { topic, key, event_type, payload, headers, content_type, trace, .. } = event;
    ExternalEvent { event_id, topic, key, event_type, partition, payload, headers, content_type, trace, request_id }
}
