//! The JSON documents of the admin routes for the command line, so that both print the same.
use app::contract::{framing, rfc3339};
use app::dead_letters::DeadLetter;
use app::seen::{Delivery, PartitionView, RowDiagnosis, RowView};
use domain::Timestamp;
use serde_json::{Value, json};

use crate::admin::dead_letter_body::{self, DeadLetterBody};
use crate::admin::diagnosis::DiagnosisBody;
use crate::admin::outbox_row::OutboxRowBody;
use crate::admin::partitions::PartitionBody;

/// An outbox row as in `/admin/outbox`.
pub fn row_document(row: &RowView) -> Value {
    serde_json::to_value(OutboxRowBody::from(row)).expect("text and numbers always serialise")
}

/// The diagnosis of a row as in `/admin/outbox/why`.
pub fn row_diagnosis_document(diagnosis: &RowDiagnosis, now: Timestamp) -> Value {
    serde_json::to_value(DiagnosisBody::of(diagnosis, now)).expect("text and numbers always serialise")
}

/// A partition as in `/admin/partitions`.
pub fn partition_document(view: PartitionView) -> Value {
    serde_json::to_value(PartitionBody::from(view)).expect("text and numbers always serialise")
}

/// A dead letter as in `/admin/dlt`.
pub fn dead_letter_document(dead_letter: &DeadLetter) -> Value {
    serde_json::to_value(DeadLetterBody::from(dead_letter)).expect("text and numbers always serialise")
}

/// A record of any topic, with headers and value as in `/admin/dlt`, and `schemaId` if it has a schema registry's frame.
pub fn record_document(delivery: &Delivery) -> Value {
    let Delivery { position, record } = delivery;
    let mut document = json!({
        "topic": &*position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "timestamp": rfc3339(record.timestamp),
        "key": &*record.key,
        "headers": dead_letter_body::headers(delivery),
        "value": dead_letter_body::value(delivery),
    });
    if let (Some(id), _) = framing::unframed(&record.value) {
        document["schemaId"] = id.into();
    }
    document
}
