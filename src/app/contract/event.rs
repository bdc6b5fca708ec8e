//! The common part of the schema versions: the decoded event, its errors, and the members that every version has.
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
    #[error("{event_type} has no schema version {version}")]
    Unregistered {
        /// Type of the event.
        event_type: EventType,
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
    pub event_type: EventType,
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
    serde_json::from_slice(value).map_err(|error| ContractError::Malformed(problem::<T>(value, &error)))
}

/// Describes the error without the value's content, which may be confidential: the reason is logged. Errors of the syntax have fixed texts, and
/// so have missing and repeated members; the text of a wrong type or number would repeat the whole value.
fn problem<'a, T: Deserialize<'a>>(value: &'a [u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    if !error.is_data() || ["missing field `", "duplicate field `"].iter().any(|fixed| text.starts_with(fixed)) {
        return text;
    }
    // Only members of the schema can have a wrong type, so the path names no others.
    let tracked = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(value));
    let path = tracked.err().map_or_else(|| ".".to_owned(), |error| error.path().to_string());
    let member = if path == "." { "the value".to_owned() } else { path };
    format!("{member} has the wrong type or range at line {} column {}", error.line(), error.column())
}

pub(super) fn member<T>(field: &str, parsed: Option<T>) -> Result<T, ContractError> {
    parsed.ok_or_else(|| ContractError::Malformed(format!("{field} is not valid")))
}
