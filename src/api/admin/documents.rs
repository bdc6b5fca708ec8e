//! The JSON documents of the admin routes for the command line, so that the output of both is equal.
use app::consume::order_topic::OrderTopic;
use app::operators::dead_letters::DeadLetter;
use app::port_types::{AuditEntry, ClaimedRow, ConsumerRecord, PartitionView, RowDiagnosis, RowView};
use app::relay::{self, RecordEnvelope, TopicContracts};
use domain::{RegionId, Timestamp};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::admin::audit::AuditEntryBody;
use crate::admin::dead_letter_body::{DeadLetterBody, header_map};
use crate::admin::diagnosis::DiagnosisBody;
use crate::admin::outbox_row::OutboxRowBody;
use crate::admin::partitions::PartitionBody;
use crate::topics::record_body::TopicRecordBody;
use crate::topics::record_value::RecordValue;

/// An outbox row as in `/admin/outbox`.
pub fn row_document(row: &RowView) -> Value {
    serde_json::to_value(OutboxRowBody::from(row)).expect("text and numbers always serialise")
}

/// The diagnosis of a row as in `/admin/outbox/why`.
pub fn row_diagnosis_document(diagnosis: &RowDiagnosis, now: Timestamp) -> Value {
    serde_json::to_value(DiagnosisBody::new(diagnosis, now)).expect("text and numbers always serialise")
}

/// The record that a row publishes.
#[derive(Debug, Serialize)]
pub struct OutboxRecordDocument {
    /// Full name of the topic.
    pub topic: String,
    /// Position of the event among the events of its key, from 1.
    pub sequence: u64,
    /// Readable headers by name: those of the last attempt by a service of this region.
    pub headers: Map<String, Value>,
    /// JSON as it was published, any other text as a JSON text; null where the payload was deleted.
    pub value: Option<Box<RawValue>>,
}

/// The record of a row.
pub fn row_record_document(event: &ClaimedRow, region: &RegionId) -> OutboxRecordDocument {
    let payload = event.payload.clone().unwrap_or_else(|| [].into());
    let record = relay::record(event, &payload, &RecordEnvelope::new(region, TopicContracts::default()));
    OutboxRecordDocument {
        topic: record.topic.to_string(),
        sequence: event.sequence,
        headers: header_map(&record.headers),
        value: event.payload.as_ref().map(|payload| RecordValue::from_bytes(payload).json),
    }
}

/// A partition as in `/admin/partitions`.
pub fn partition_document(view: PartitionView) -> Value {
    serde_json::to_value(PartitionBody::from(view)).expect("text and numbers always serialise")
}

/// An entry of the audit table as in `/admin/audit`.
pub fn audit_entry_document(entry: &AuditEntry) -> Value {
    serde_json::to_value(AuditEntryBody::from(entry)).expect("text and numbers always serialise")
}

/// A dead letter as in `/admin/dlt`.
pub fn dead_letter_document(dead_letter: &DeadLetter, orders: &OrderTopic) -> Box<RawValue> {
    to_raw_value(&DeadLetterBody::new(dead_letter, orders)).expect("text and numbers always serialise")
}

/// A record of any topic, with headers and value as in `/admin/dlt`, and `schemaId` if it has a schema registry's frame.
pub fn record_document(message: &ConsumerRecord, orders: &OrderTopic) -> Box<RawValue> {
    to_raw_value(&TopicRecordBody::new(message, orders)).expect("text and numbers always serialise")
}
