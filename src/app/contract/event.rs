//! What the schema versions have in common: the decoded event, its errors, and the members that every version has.
use std::borrow::Cow;

use domain::{EventId, EventType, OrderId, Status, Timestamp};
use serde::Deserialize;

/// The schema version that is written by default.
pub const LATEST: u32 = 2;
/// The oldest schema version that is read.
pub const READABLE_MIN: u32 = 1;

/// Why a value is not a readable event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// The value is not JSON, or does not match its schema.
    #[error("not an event: {0}")]
    Malformed(String),
    /// The schema version is unknown, or no longer readable.
    #[error("schema version {0} is not readable (readable: {READABLE_MIN} to {LATEST})")]
    Version(u32),
}

/// A consumed event with the members of every version, and those that later versions add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedEvent {
    /// Schema version in which it was written.
    pub schema_version: u32,
    /// Id of the event.
    pub event_id: EventId,
    /// Type of the event.
    pub kind: EventType,
    /// Id of the changed order.
    pub order_id: OrderId,
    /// Time of the change.
    pub occurred_at: Timestamp,
    /// State of the order after the event; from version 2 on.
    pub after: Option<OrderAfterEvent>,
}

/// State of an order after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderAfterEvent {
    /// Status of the order.
    pub status: Status,
    /// Version of the order.
    pub version: u64,
}

/// Event, type and order of a value, which every version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventIdentity {
    /// Id of the event.
    pub event_id: EventId,
    /// Type of the event.
    pub kind: EventType,
    /// Id of the changed order.
    pub order_id: OrderId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityFields<'a> {
    schema_version: u32,
    #[serde(borrow)]
    event_id: Cow<'a, str>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    order_id: Cow<'a, str>,
}

/// Decodes only the identity of a value, in a third of the time of a full decode. It is enough for a value that this service wrote.
///
/// # Errors
/// The same as `decode`, for the members that are read.
pub fn event_identity(value: &[u8]) -> Result<EventIdentity, ContractError> {
    let fields: IdentityFields<'_> = read(value)?;
    if !(READABLE_MIN..=LATEST).contains(&fields.schema_version) {
        return Err(ContractError::Version(fields.schema_version));
    }
    Ok(EventIdentity {
        event_id: member("eventId", EventId::parse(&fields.event_id))?,
        kind: member("eventType", EventType::parse(&fields.event_type))?,
        order_id: member("orderId", OrderId::parse(&fields.order_id))?,
    })
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
}

/// Decodes only the schema version of a value.
pub(super) fn schema_version(value: &[u8]) -> Result<u32, ContractError> {
    read::<Versioned>(value).map(|versioned| versioned.schema_version)
}

pub(super) fn read<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T, ContractError> {
    serde_json::from_slice(value).map_err(|error| ContractError::Malformed(error.to_string()))
}

pub(super) fn member<T>(field: &str, parsed: Option<T>) -> Result<T, ContractError> {
    parsed.ok_or_else(|| ContractError::Malformed(format!("{field} is not valid")))
}
