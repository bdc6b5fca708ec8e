//! A dead letter as operators see it.
use app::contract::{framing, rfc3339};
use app::operators::dead_letters::{DeadLetter, DeadLetterOrigin};
use app::port_types::{Delivery, FailureType};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A record that consumers, or the relay, set aside.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub(crate) struct LetterBody {
    /// The dead letters' own topic.
    #[schema(example = "order.events-dlt")]
    topic: String,
    #[schema(example = 3)]
    partition: u32,
    #[schema(example = 17)]
    offset: u64,
    /// When it was set aside.
    #[schema(format = DateTime)]
    timestamp: String,
    key: String,
    #[schema(example = "ORDER_CREATED")]
    r#type: Option<String>,
    event_id: Option<String>,
    /// NETWORK, TIMEOUT, VALIDATION or SYSTEM
    #[schema(example = "SYSTEM")]
    failure_type: Option<&'static str>,
    /// What kind of error it was.
    exception: Option<String>,
    /// Why it was set aside.
    reason: Option<String>,
    /// Attempts before that.
    attempts: Option<u32>,
    /// Where it stood before it failed.
    original: Option<OriginalPlace>,
    /// Text where it is text, else hexadecimal digits behind `0x`.
    headers: Map<String, Value>,
    /// Its value, as JSON where it is JSON.
    value: Value,
    /// Who sent it back; null while nobody did.
    redriven: Option<RedriveNote>,
}

/// Where a dead letter stood before it failed.
#[derive(Serialize, ToSchema)]
pub(crate) struct OriginalPlace {
    #[schema(example = "order.events")]
    topic: String,
    partition: Option<i32>,
    offset: Option<i64>,
    #[schema(format = DateTime)]
    timestamp: Option<String>,
}

/// Who sent a dead letter back.
#[derive(Serialize, ToSchema)]
pub(crate) struct RedriveNote {
    by: String,
    reason: String,
    #[schema(format = DateTime)]
    at: String,
    /// Whether it stands in its topic again; one that does not is on its way, or whoever sent it has died.
    arrived: bool,
}

impl From<&DeadLetter> for LetterBody {
    fn from(letter: &DeadLetter) -> Self {
        let Delivery { position, record } = &letter.delivery;
        let text = |text: Option<&str>| text.map(str::to_owned);
        Self {
            topic: position.topic.to_string(),
            partition: position.partition,
            offset: position.offset,
            timestamp: rfc3339(record.timestamp),
            key: record.key.to_string(),
            r#type: text(letter.kind()),
            event_id: text(letter.event_id()),
            failure_type: letter.failure_type().map(FailureType::as_str),
            exception: text(letter.exception()),
            reason: text(letter.reason()),
            attempts: letter.attempts(),
            original: letter.origin().map(OriginalPlace::from),
            headers: headers(&letter.delivery),
            value: value(&letter.delivery),
            redriven: letter.redrive.as_ref().map(|redriven| RedriveNote {
                by: redriven.audit.operator.clone(),
                reason: redriven.audit.reason.clone(),
                at: rfc3339(redriven.at),
                arrived: redriven.confirmed,
            }),
        }
    }
}

impl From<DeadLetterOrigin> for OriginalPlace {
    fn from(origin: DeadLetterOrigin) -> Self {
        let DeadLetterOrigin { topic, partition, offset, timestamp } = origin;
        Self { topic, partition, offset, timestamp: timestamp.map(rfc3339) }
    }
}

/// A record's headers for people.
pub(crate) fn headers(delivery: &Delivery) -> Map<String, Value> {
    let header = |(name, value): &(std::sync::Arc<str>, std::sync::Arc<[u8]>)| {
        (name.to_string(), Value::String(readable(value)))
    };
    delivery.record.headers.iter().map(header).collect()
}

/// A record's value for people, without the frame of a schema registry.
pub(crate) fn value(delivery: &Delivery) -> Value {
    let (_, bytes) = framing::unframed(&delivery.record.value);
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(readable(bytes)))
}

/// Text where it is text, else hexadecimal digits.
pub(crate) fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control()) => text.to_owned(),
        _ => bytes.iter().fold(String::from("0x"), |text, byte| text + &format!("{byte:02x}")),
    }
}
