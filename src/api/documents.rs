//! The documents that the command line prints as HTTP answers them: one serializer, two faces.
use app::contract::{framing, rfc3339};
use app::operators::dead_letters::DeadLetter;
use app::port_types::{Delivery, PartitionView, RowDiagnosis, RowView};
use domain::Timestamp;
use serde_json::{Value, json};

use crate::admin::letter::{self, LetterBody};
use crate::admin::partitions::PartitionBody;
use crate::admin::row::RowBody;
use crate::admin::why::Why;

/// A row, as `/admin/outbox` shows it.
pub fn row_document(row: &RowView) -> Value {
    serde_json::to_value(RowBody::from(row)).expect("text and numbers always serialise")
}

/// Why an event stands where it stands, as `/admin/outbox/why` says it.
pub fn standing_document(standing: &RowDiagnosis, now: Timestamp) -> Value {
    serde_json::to_value(Why::of(standing, now)).expect("text and numbers always serialise")
}

/// A partition, as `/admin/partitions` shows it.
pub fn partition_document(view: PartitionView) -> Value {
    serde_json::to_value(PartitionBody::from(view)).expect("text and numbers always serialise")
}

/// A dead letter, as `/admin/dlt` shows it.
pub fn letter_document(letter: &DeadLetter) -> Value {
    serde_json::to_value(LetterBody::from(letter)).expect("text and numbers always serialise")
}

/// A record of any topic; headers and value as in `/admin/dlt`. One that is framed for a schema registry tells its `schemaId`.
pub fn record_document(delivery: &Delivery) -> Value {
    let Delivery { position, record } = delivery;
    let mut document = json!({
        "topic": &*position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "timestamp": rfc3339(record.timestamp),
        "key": &*record.key,
        "headers": letter::headers(delivery),
        "value": letter::value(delivery),
    });
    if let (Some(id), _) = framing::unframed(&record.value) {
        document["schemaId"] = id.into();
    }
    document
}
