//! The JSON body of a dead letter.
use app::consume::order_topic::OrderTopic;
use app::contract::rfc3339;
use app::operators::dead_letters::{DeadLetter, DeadLetterOrigin, RefusedDeadLetters};
use app::port_types::{ConsumerRecord, FailureType, RecordHeaders};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::openapi::schemas::FailureTypeName;
use crate::topics::record_value::{RecordValue, readable};

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
    /// JSON as it was published, without the white space between its tokens; else as text. A value that is no UTF-8 has its hexadecimal
    /// digits after `0x`.
    #[schema(value_type = Value)]
    value: Box<RawValue>,
    /// The value in base64, if it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    value_base64: Option<String>,
    /// The redrive of this dead letter; null before its first one.
    redriven: Option<DeadLetterRedrive>,
}

/// The position that a dead letter had before its first failure.
#[derive(Serialize, ToSchema)]
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
pub(crate) struct DeadLetterRedrive {
    by: String,
    reason: String,
    #[schema(format = DateTime)]
    at: String,
    /// Whether the record is in its topic again. If not, its redrive is in progress or was interrupted.
    arrived: bool,
}

/// Dead letters that the broker refuses, such as records that are too large for their topic.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RefusedDeadLetters)]
pub struct RefusalsBody {
    #[schema(example = 1)]
    count: u64,
    /// At most 20 of them, in the order in which they were tried.
    dead_letters: Vec<RefusalBody>,
}

/// A dead letter that the broker refuses.
#[derive(Serialize, ToSchema)]
#[schema(as = RefusedDeadLetter)]
struct RefusalBody {
    /// Partition and offset in the dead-letter topic.
    #[schema(example = "3/17")]
    position: String,
    /// Why the broker refuses the record.
    reason: String,
}

impl RefusalsBody {
    /// `None` where no dead letter was refused: documents leave it out.
    pub fn from_refusals(refusals: &RefusedDeadLetters) -> Option<Self> {
        let named = refusals.named().iter();
        let named =
            named.map(|refused| RefusalBody { position: refused.position.to_string(), reason: refused.reason.clone() });
        (refusals.count() > 0).then(|| Self { count: refusals.count(), dead_letters: named.collect() })
    }
}

impl DeadLetterBody {
    pub(crate) fn new(dead_letter: &DeadLetter, orders: &OrderTopic) -> Self {
        let ConsumerRecord { position, record } = &dead_letter.message;
        let value = RecordValue::from_bytes(orders.unframed(&dead_letter.message).1);
        let text = |text: Option<&str>| text.map(str::to_owned);
        Self {
            topic: position.topic.to_string(),
            partition: position.partition,
            offset: position.offset,
            timestamp: rfc3339(record.timestamp),
            key: record.key.to_string(),
            r#type: text(dead_letter.event_type()),
            event_id: text(dead_letter.event_id()),
            failure_type: dead_letter.failure_type().map(FailureType::as_str),
            exception: text(dead_letter.exception()),
            reason: text(dead_letter.reason()),
            attempts: dead_letter.attempts(),
            original: dead_letter.origin().map(OriginalPosition::from),
            headers: header_map(&record.headers),
            value: value.json,
            value_base64: value.base64,
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

/// Header names with their values as JSON texts.
pub(crate) fn header_map(headers: &RecordHeaders) -> Map<String, Value> {
    headers.iter().map(|(name, value)| (name.to_owned(), Value::String(readable(value)))).collect()
}

#[cfg(test)]
mod tests {
    use app::operators::dead_letters::{DeadLetterPosition, RefusedDeadLetter};
    use serde_json::json;

    use super::*;

    #[test]
    fn report_has_refused_dead_letters_only_where_there_are_some() {
        let position = DeadLetterPosition { partition: 3, offset: 17 };
        let refused = RefusedDeadLetter { position, reason: "too large".into() };

        let body = RefusalsBody::from_refusals(&RefusedDeadLetters::new(1, vec![refused]));

        let named = json!([{"position": "3/17", "reason": "too large"}]);
        assert_eq!(json!(body), json!({"count": 1, "deadLetters": named}));
        assert!(RefusalsBody::from_refusals(&RefusedDeadLetters::default()).is_none());
    }
}
