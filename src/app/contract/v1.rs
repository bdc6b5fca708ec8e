//! Schema version 1: the event alone. Released; never changes.
use domain::{EventId, EventType, OrderEvent, OrderId};
use serde::{Deserialize, Serialize};

use super::event::{ContractError, DecodedEvent, member, read};
use super::time::{parse_rfc3339, rfc3339};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventValueV1 {
    schema_version: u32,
    event_id: String,
    event_type: String,
    order_id: String,
    occurred_at: String,
}

pub(super) fn encode(event: &OrderEvent) -> Vec<u8> {
    let value = EventValueV1 {
        schema_version: 1,
        event_id: event.id.to_string(),
        event_type: event.event_type.as_str().to_owned(),
        order_id: event.order_id.to_string(),
        occurred_at: rfc3339(event.occurred_at),
    };
    serde_json::to_vec(&value).expect("strings and numbers always serialise")
}

pub(super) fn decode(bytes: &[u8]) -> Result<DecodedEvent, ContractError> {
    let value: EventValueV1 = read(bytes)?;
    Ok(DecodedEvent {
        schema_version: value.schema_version,
        event_id: member("eventId", EventId::parse(&value.event_id))?,
        event_type: member("eventType", EventType::parse(&value.event_type))?,
        order_id: member("orderId", OrderId::parse(&value.order_id))?,
        occurred_at: member("occurredAt", parse_rfc3339(&value.occurred_at))?,
        after: None,
    })
}
