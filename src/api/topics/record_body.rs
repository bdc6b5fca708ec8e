//! Records of a topic as JSON: the same form in responses, in server-sent events and in `topic tail --json`.
use app::consume::order_topic::OrderTopic;
use app::consume::topic_cursor::TopicCursor;
use app::contract::rfc3339;
use app::port_types::ConsumerRecord;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::admin::dead_letter_body::header_map;
use crate::topics::record_value::RecordValue;

/// A record of a topic.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicRecord)]
pub(crate) struct TopicRecordBody<'a> {
    #[schema(example = "order.events")]
    topic: &'a str,
    #[schema(example = 3)]
    partition: u32,
    #[schema(example = 17)]
    offset: u64,
    #[schema(format = DateTime)]
    timestamp: String,
    key: &'a str,
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
    /// The schema's id, if the value is an order's event with a schema registry's frame. `value` is without the frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    schema_id: Option<u32>,
}

impl<'a> TopicRecordBody<'a> {
    pub(crate) fn new(message: &'a ConsumerRecord, orders: &OrderTopic) -> Self {
        let ConsumerRecord { position, record } = message;
        let (schema_id, value) = orders.unframed(message);
        let value = RecordValue::from_bytes(value);
        Self {
            topic: &position.topic,
            partition: position.partition,
            offset: position.offset,
            timestamp: rfc3339(record.timestamp),
            key: &record.key,
            headers: header_map(&record.headers),
            value: value.json,
            value_base64: value.base64,
            schema_id,
        }
    }
}

/// The line after a part of the records: the position behind all records before it.
#[derive(Serialize, ToSchema)]
#[schema(as = CursorLine)]
pub(crate) struct CursorLine {
    /// `after` of the next request, and what to commit once the records are processed.
    #[schema(example = "0:17,3:4")]
    cursor: String,
}

/// One line of a response: a record, or the position behind the records before it.
#[derive(ToSchema)]
#[schema(as = TopicLine)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's schema of a line; responses are written line by line")]
pub(crate) enum TopicLine<'a> {
    Record(TopicRecordBody<'a>),
    Cursor(CursorLine),
}

/// The records as lines, and the line with the cursor behind them.
pub(crate) fn lines(records: &[ConsumerRecord], cursor: &TopicCursor, orders: &OrderTopic) -> Vec<u8> {
    let mut text = Vec::new();
    for record in records {
        write_json(&mut text, &TopicRecordBody::new(record, orders));
        text.push(b'\n');
    }
    write_json(&mut text, &CursorLine { cursor: cursor.to_string() });
    text.push(b'\n');
    text
}

/// The records as server-sent events; the last one has the cursor behind all of them as its id.
pub(crate) fn events(records: &[ConsumerRecord], cursor: &TopicCursor, orders: &OrderTopic) -> Vec<u8> {
    let mut text = Vec::new();
    for (left, record) in (0..records.len()).rev().zip(records) {
        text.extend_from_slice(b"event: record\n");
        if left == 0 {
            text.extend_from_slice(format!("id: {cursor}\n").as_bytes());
        }
        text.extend_from_slice(b"data: ");
        write_json(&mut text, &TopicRecordBody::new(record, orders));
        text.extend_from_slice(b"\n\n");
    }
    text
}

fn write_json(text: &mut Vec<u8>, body: &impl Serialize) {
    // Writing to a Vec cannot fail, and the bodies have only texts, numbers, lists and objects.
    serde_json::to_writer(text, body).expect("the body is plain data");
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use ports::broker::{Position, Record};

    use super::*;

    fn line(topic: &str, value: &[u8]) -> String {
        let record = Record {
            topic: topic.into(),
            key: "k".into(),
            headers: Default::default(),
            value: value.into(),
            timestamp: Timestamp::from_millis(0),
        };
        let message = ConsumerRecord { position: Position { topic: topic.into(), partition: 0, offset: 7 }, record };
        let text = lines(&[message], &TopicCursor::from_offsets([(0, 8)]), &OrderTopic::new("order.events"));
        let text = String::from_utf8(text).expect("text");
        let (record, rest) = text.split_once('\n').expect("a line");
        assert_eq!(rest, "{\"cursor\":\"0:8\"}\n");
        record.split_once("\"headers\":{},").expect("the value is behind the headers").1.to_owned()
    }

    #[test]
    fn record_is_one_line_with_the_value_that_was_published() {
        let json = b"{\n \"price\": 1.10, \"id\": 12345678901234567890, \"id\": 2\n}";

        assert_eq!(line("readings", json), r#""value":{"price":1.10,"id":12345678901234567890,"id":2}}"#);
        assert_eq!(line("readings", b"two\nlines"), r#""value":"two\nlines"}"#);
        assert_eq!(line("readings", b"\x00\xff"), r#""value":"0x00ff","valueBase64":"AP8="}"#);
    }

    #[test]
    fn only_an_order_event_has_a_frame() {
        let value = b"\0\0\0\0\x11{}";

        for topic in ["order.events", "order.events-retry-0", "order.events-dlt"] {
            assert_eq!(line(topic, value), r#""value":{},"schemaId":17}"#);
        }
        assert_eq!(line("readings", value), r#""value":"\u0000\u0000\u0000\u0000\u0011{}"}"#);
    }
}
