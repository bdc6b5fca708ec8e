//! The documents that the command line prints as HTTP answers them: one serializer, two faces.
use app::seen::{PartitionView, RowView};
use serde_json::Value;

use crate::admin::partitions::PartitionBody;
use crate::admin::row::RowBody;

/// A row, as `/admin/outbox` shows it.
pub fn row_document(row: &RowView) -> Value {
    serde_json::to_value(RowBody::from(row)).expect("text and numbers always serialise")
}

/// A partition, as `/admin/partitions` shows it.
pub fn partition_document(view: PartitionView) -> Value {
    serde_json::to_value(PartitionBody::from(view)).expect("text and numbers always serialise")
}
