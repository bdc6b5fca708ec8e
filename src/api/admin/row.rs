//! A row of the outbox as operators see it: the view's columns, under their own names.
use app::port_types::RowView;
use domain::{EventId, OrderId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::orders::shape::Shown;
use app::contract::rfc3339;

/// A row of the outbox.
#[derive(Serialize, ToSchema)]
#[schema(as = OutboxRow)]
pub(crate) struct RowBody {
    /// Its place.
    #[schema(example = 42)]
    id: i64,
    #[schema(value_type = String, format = "uuid")]
    event_id: Shown<EventId>,
    /// The order.
    #[schema(value_type = String, format = "uuid")]
    key: Shown<OrderId>,
    #[schema(example = "ORDER_CREATED")]
    r#type: String,
    #[schema(example = 7)]
    partition: u32,
    /// PENDING, IN_FLIGHT, FAILED, PARKED or SENT
    #[schema(example = "PENDING")]
    status: &'static str,
    lease_owner: Option<String>,
    /// The token of its last claim.
    lease_version: u64,
    /// Attempts made.
    retry_count: u32,
    #[schema(format = DateTime)]
    next_attempt_at: Option<String>,
    /// NETWORK, TIMEOUT, VALIDATION or SYSTEM
    failure_type: Option<&'static str>,
    last_failure_reason: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    sent_at: Option<String>,
}

impl From<&RowView> for RowBody {
    fn from(row: &RowView) -> Self {
        Self {
            id: row.id,
            event_id: Shown(row.event_id),
            key: Shown(row.key),
            r#type: row.kind.clone(),
            partition: row.partition.0,
            status: row.status.as_str(),
            lease_owner: row.lease_owner.as_ref().map(ToString::to_string),
            lease_version: row.lease_version,
            retry_count: row.retry_count,
            next_attempt_at: row.next_attempt_at.map(rfc3339),
            failure_type: row.failure_type.map(app::port_types::FailureType::as_str),
            last_failure_reason: row.last_failure_reason.clone(),
            created_at: rfc3339(row.created_at),
            sent_at: row.sent_at.map(rfc3339),
        }
    }
}
