//! The JSON body of a dead letter.
use app::contract::{framing, rfc3339};
use app::operators::dead_letters::{DeadLetter, DeadLetterOrigin};
use app::port_types::{Delivery, FailureType, Header};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::openapi::schemas::FailureTypeName;

/// A record that a consumer or the relay has moved to the dead-letter topic.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub(crate) struct DeadLetterBody {
    /// The name of the dead-letter topic.
    #[schema(example = "order.events-dlt")]
    topic: String,
    #[schema(example = 3)]
    partition: u32,
    #[schema(example = 17)]
    offset: u64,
    /// When the record was dead-lettered.
    #[schema(format = DateTime)]
    timestamp: String,
    key: String,
    #[schema(example = "ORDER_CREATED")]
    r#type: Option<String>,
    event_id: Option<String>,
    #[schema(value_type = Option<FailureTypeName>, example = "SYSTEM")]
    failure_type: Option<&'static str>,
    /// The class of the error.
    exception: Option<String>,
    /// The message of the error.
    reason: Option<String>,
    /// Attempts before the record was dead-lettered.
    attempts: Option<u32>,
    /// The position of the original record.
    original: Option<OriginalPosition>,
    /// Header values that are not printable text are hexadecimal digits after `0x`.
    headers: Map<String, Value>,
    /// The value as JSON if it is JSON, else as text.
    value: Value,
    /// The redrive of this dead letter; null before its first one.
    redriven: Option<DeadLetterRedrive>,
}

/// The position that a dead letter had before its first failure.
#[derive(Serialize, ToSchema)]
#[schema(as = OriginalPlace)]
pub(crate) struct OriginalPosition {
    #[schema(example = "order.events")]
    topic: String,
    partition: Option<i32>,
    offset: Option<i64>,
    #[schema(format = DateTime)]
    timestamp: Option<String>,
}

/// A redrive of a dead letter: the operator, the reason and the time.
#[derive(Serialize, ToSchema)]
#[schema(as = RedriveNote)]
pub(crate) struct DeadLetterRedrive {
    by: String,
    reason: String,
    #[schema(format = DateTime)]
    at: String,
    /// Whether the record is in its topic again. If not, its redrive is in progress or was interrupted.
    arrived: bool,
}

impl From<&DeadLetter> for DeadLetterBody {
    fn from(dead_letter: &DeadLetter) -> Self {
        let Delivery { position, record } = &dead_letter.delivery;
        let text = |text: Option<&str>| text.map(str::to_owned);
        Self {
            topic: position.topic.to_string(),
            partition: position.partition,
            offset: position.offset,
            timestamp: rfc3339(record.timestamp),
            key: record.key.to_string(),
            r#type: text(dead_letter.kind()),
            event_id: text(dead_letter.event_id()),
            failure_type: dead_letter.failure_type().map(FailureType::as_str),
            exception: text(dead_letter.exception()),
            reason: text(dead_letter.reason()),
            attempts: dead_letter.attempts(),
            original: dead_letter.origin().map(OriginalPosition::from),
            headers: headers(&dead_letter.delivery),
            value: value(&dead_letter.delivery),
            redriven: dead_letter.redrive.as_ref().map(|redriven| DeadLetterRedrive {
                by: redriven.audit.operator.clone(),
                reason: redriven.audit.reason.clone(),
                at: rfc3339(redriven.at),
                arrived: redriven.confirmed,
            }),
        }
    }
}

impl From<DeadLetterOrigin> for OriginalPosition {
    fn from(origin: DeadLetterOrigin) -> Self {
        let DeadLetterOrigin { topic, partition, offset, timestamp } = origin;
        Self { topic, partition, offset, timestamp: timestamp.map(rfc3339) }
    }
}

/// The headers of a delivered record as JSON.
pub(crate) fn headers(delivery: &Delivery) -> Map<String, Value> {
    header_map(&delivery.record.headers)
}

/// The value of a delivered record as JSON, without the frame of a schema registry.
pub(crate) fn value(delivery: &Delivery) -> Value {
    decoded(&delivery.record.value)
}

/// Header names with their values as JSON texts.
pub(crate) fn header_map(headers: &[Header]) -> Map<String, Value> {
    let header = |(name, value): &Header| (name.to_string(), Value::String(readable(value)));
    headers.iter().map(header).collect()
}

/// A value as JSON, without the frame of a schema registry.
pub(crate) fn decoded(value: &[u8]) -> Value {
    let (_, bytes) = framing::unframed(value);
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(readable(bytes)))
}

/// Printable text as it is, other bytes as hexadecimal digits after `0x`.
pub(crate) fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control()) => text.to_owned(),
        _ => bytes.iter().fold(String::from("0x"), |text, byte| text + &format!("{byte:02x}")),
    }
}
