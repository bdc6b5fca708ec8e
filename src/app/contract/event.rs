//! What the schema versions have in common: the decoded event, its errors, and the members that every version has.
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
    /// The value has the form of its schema, but breaks a rule between its members.
    #[error("not a legal event: {0}")]
    Illegal(String),
    /// The schema version is unknown, or no longer readable.
    #[error("schema version {0} is not readable (readable: {READABLE_MIN} to {LATEST})")]
    Version(u32),
    /// The registry has no schema of this type in this version.
    #[error("{kind} has no schema version {version}")]
    Unregistered {
        /// Type of the event.
        kind: EventType,
        /// Schema version of the value.
        version: u32,
    },
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
    /// Status after the event.
    pub status: Status,
    /// Version after the event.
    pub version: u64,
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
