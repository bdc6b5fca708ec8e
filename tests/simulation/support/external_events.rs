//! Events of another service, as POST /events hands them over.
use std::sync::Arc;

use app::commands::publish_events::fingerprint;
use app::dispatch::{EventsPublished, IdempotencyKey, PublishEvents, SubmittedEvent};
use domain::EventId;
use kit::clock::{START_TIME, SeededRng};
use outbox::EventKey;
use ports::clock::Rng;
use ports::event_headers::EventHeaders;

use crate::support::process::{Process, subject};

/// Topic of the events.
pub const CUSTOMERS: &str = "customers";

/// Hands over one event without an id of its own. `payload` is also its key.
pub async fn publish(process: &Process, payload: &str, idempotency_key: Option<&str>) -> EventsPublished {
    publish_of_key(process, payload, payload, idempotency_key).await
}

/// Hands over one event of this key without an id of its own.
pub async fn publish_of_key(
    process: &Process,
    key: &str,
    payload: &str,
    idempotency_key: Option<&str>,
) -> EventsPublished {
    process.publish(event_of_key(key, payload, idempotency_key)).await.expect("the store works")
}

/// The command that hands over one event without an id of its own. `payload` is also its key.
pub fn external_event(payload: &str, idempotency_key: Option<&str>) -> PublishEvents {
    event_of_key(payload, payload, idempotency_key)
}

/// The command that hands over one to three events of a few keys, with ids of their own.
pub fn random_batch(rng: &SeededRng) -> PublishEvents {
    let events = (0..1 + rng.next_u64() % 3).map(|_| SubmittedEvent {
        event_id: Some(EventId::new_v7(START_TIME, rng.entropy())),
        ..submitted_event(["customer 7", "Ärger/ä"][(rng.next_u64() % 2) as usize], "moved")
    });
    PublishEvents { subject: subject(), events: events.collect(), idempotency_key: None, span: None, request_id: None }
}

fn event_of_key(key: &str, payload: &str, idempotency_key: Option<&str>) -> PublishEvents {
    let events = vec![submitted_event(key, payload)];
    let idempotency_key =
        idempotency_key.map(|key| IdempotencyKey { key: Arc::from(key), fingerprint: fingerprint(&events) });
    PublishEvents { subject: subject(), events, idempotency_key, span: None, request_id: None }
}

fn submitted_event(key: &str, payload: &str) -> SubmittedEvent {
    SubmittedEvent {
        event_id: None,
        topic: CUSTOMERS.into(),
        key: EventKey::from_text(key),
        event_type: "CustomerMoved".into(),
        payload: payload.as_bytes().into(),
        headers: EventHeaders::default(),
        content_type: None,
        trace: None,
    }
}
