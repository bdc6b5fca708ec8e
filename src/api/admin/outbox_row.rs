//! The JSON body of an outbox row: the columns of the SQL view in camelCase.
use app::contract::rfc3339;
use app::port_types::{EventKey, RowView};
use domain::EventId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schemas::{FailureTypeName, RowStatusName};
use crate::request::response::AsText;

/// A row of the outbox.
#[derive(Serialize, ToSchema)]
#[schema(as = OutboxRow)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxRowBody {
    /// Grows in insertion order.
    #[schema(minimum = 0, example = 42)]
    id: i64,
    #[schema(value_type = String, format = "uuid")]
    event_id: AsText<EventId>,
    /// The key of the event; the order id, for an order's event.
    #[schema(value_type = String, example = "0190163d-8694-739b-aea5-966c26f8ad91")]
    key: AsText<EventKey>,
    #[schema(example = "ORDER_CREATED")]
    r#type: String,
    #[schema(example = 7)]
    partition: u32,
    #[schema(value_type = RowStatusName, example = "PENDING")]
    status: &'static str,
    lease_owner: Option<String>,
    /// The fencing token of the last claim.
    lease_version: u64,
    /// Attempts counted so far. Attempts that failed in an outage are counted only up to half of `attempts_max`.
    retry_count: u32,
    #[schema(format = DateTime)]
    next_attempt_at: Option<String>,
    #[schema(format = DateTime)]
    last_attempt_at: Option<String>,
    #[schema(value_type = Option<FailureTypeName>)]
    failure_type: Option<&'static str>,
    last_failure_reason: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    sent_at: Option<String>,
}

impl From<&RowView> for OutboxRowBody {
    fn from(row: &RowView) -> Self {
        Self {
            id: row.id,
            event_id: AsText(row.event_id),
            key: AsText(row.key.clone()),
            r#type: row.event_type.clone(),
            partition: row.partition.0,
            status: row.status.as_str(),
            lease_owner: row.lease_owner.as_ref().map(ToString::to_string),
            lease_version: row.lease_version,
            retry_count: row.retry_count,
            next_attempt_at: row.next_attempt_at.map(rfc3339),
            last_attempt_at: row.last_attempt_at.map(rfc3339),
            failure_type: row.failure_type.map(app::port_types::FailureType::as_str),
            last_failure_reason: row.last_failure_reason.clone(),
            created_at: rfc3339(row.created_at),
            sent_at: row.sent_at.map(rfc3339),
        }
    }
}
