//! Records of a topic as JSON: the same form in responses, in server-sent events and in `topic tail --json`.
use app::consume::topic_cursor::TopicCursor;
use app::contract::{framing, rfc3339};
use app::port_types::Delivery;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::admin::dead_letter_body;

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
    /// The value as JSON if it is JSON, else as text.
    value: Value,
    /// The schema's id, if the value has a schema registry's frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    schema_id: Option<u32>,
}

impl<'a> From<&'a Delivery> for TopicRecordBody<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        let Delivery { position, record } = delivery;
        Self {
            topic: &position.topic,
            partition: position.partition,
            offset: position.offset,
            timestamp: rfc3339(record.timestamp),
            key: &record.key,
            headers: dead_letter_body::headers(delivery),
            value: dead_letter_body::value(delivery),
            schema_id: framing::unframed(&record.value).0,
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
pub(crate) fn lines(records: &[Delivery], cursor: &TopicCursor) -> Vec<u8> {
    let mut text = Vec::new();
    for record in records {
        write_json(&mut text, &TopicRecordBody::from(record));
        text.push(b'\n');
    }
    write_json(&mut text, &CursorLine { cursor: cursor.to_string() });
    text.push(b'\n');
    text
}

/// The records as server-sent events; the last one has the cursor behind all of them as its id.
pub(crate) fn events(records: &[Delivery], cursor: &TopicCursor) -> Vec<u8> {
    let mut text = Vec::new();
    for (left, record) in (0..records.len()).rev().zip(records) {
        text.extend_from_slice(b"event: record\n");
        if left == 0 {
            text.extend_from_slice(format!("id: {cursor}\n").as_bytes());
        }
        text.extend_from_slice(b"data: ");
        write_json(&mut text, &TopicRecordBody::from(record));
        text.extend_from_slice(b"\n\n");
    }
    text
}

fn write_json(text: &mut Vec<u8>, body: &impl Serialize) {
    // Writing to a Vec cannot fail, and the bodies have only texts, numbers, lists and objects.
    serde_json::to_writer(text, body).expect("the body is plain data");
}
