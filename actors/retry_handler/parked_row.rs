//! ParkedRow: the log line and the live event of a row that a statement of the RetryHandler or of a PartitionWorker has parked.
use domain::EventId;
use ports::FailureType;
use ports::orders::order_of_event;
use ports::outbox::{ClaimedRow, EventKey, Exclusion, PoisonRow, RowId};
use supervision::SupervisionBus;
use tracing::field::display;

/// A row that waits for an operator.
pub struct ParkedRow<'a> {
    /// Row id, for `outbox retry`.
    pub row: RowId,
    /// Event that the row does not publish.
    pub event_id: EventId,
    /// Key whose later rows may wait.
    pub key: &'a EventKey,
    /// Type of the event.
    pub event_type: &'a str,
    /// Id of the request that made the change.
    pub request_id: Option<&'a str>,
    /// Attempts made, including the last one.
    pub attempt: u32,
    /// Where the failure came from.
    pub failure_type: FailureType,
    /// Why the row was parked.
    pub error: &'a str,
}

impl<'a> From<&'a PoisonRow> for ParkedRow<'a> {
    fn from(poison: &'a PoisonRow) -> Self {
        Self {
            row: poison.id,
            event_id: poison.event_id,
            key: &poison.key,
            event_type: &poison.event_type,
            request_id: poison.request_id.as_deref(),
            attempt: poison.attempts,
            failure_type: FailureType::System,
            error: &poison.reason,
        }
    }
}

impl<'a> ParkedRow<'a> {
    /// The row that this exclusion parks.
    pub fn from_exclusion(exclusion: &'a Exclusion, row: &'a ClaimedRow) -> Self {
        Self {
            row: row.id,
            event_id: row.event_id,
            key: &row.key,
            event_type: &row.event_type,
            request_id: row.request_id.as_deref(),
            attempt: row.attempt,
            failure_type: exclusion.failure_type,
            error: &exclusion.reason,
        }
    }

    /// Logs an error, because an operator must act, and puts the fact on the live stream. Call it after the store has confirmed that the row
    /// is parked.
    pub fn report(&self, bus: &SupervisionBus) {
        self.log();
        self.publish(bus);
    }

    /// Logs an error where the store's reply was lost: the row is parked, or it fails again and is reported then.
    pub fn report_unknown(&self) {
        let Self { row, event_id, key, event_type: r#type, request_id, attempt, failure_type, error } = self;
        let (failure_type, order_id) = (failure_type.as_str(), order_of_event(r#type, key).map(display));
        tracing::error!(
            event = "event_parking_unknown", %event_id, order_id, request_id, %key, r#type, row, attempt, failure_type, error,
            "event {event_id} of key {key} may have been parked after attempt {attempt}: the store's reply was lost: {error}"
        );
    }

    fn log(&self) {
        let Self { row, event_id, key, event_type: r#type, request_id, attempt, failure_type, error } = self;
        let (failure_type, order_id) = (failure_type.as_str(), order_of_event(r#type, key).map(display));
        tracing::error!(
            event = "event_parked", %event_id, order_id, request_id, %key, r#type, row, attempt, failure_type, error,
            "event {event_id} of key {key} was parked after attempt {attempt} and waits for an operator: {error}"
        );
    }

    fn publish(&self, bus: &SupervisionBus) {
        let Self { row, key, event_type, attempt, failure_type, error, event_id, request_id } = self;
        let mut fields = vec![
            ("event_id", event_id.to_string()),
            ("row", row.to_string()),
            ("key", key.to_string()),
            ("type", (*event_type).to_owned()),
            ("attempt", attempt.to_string()),
            ("failure_type", failure_type.as_str().to_owned()),
            ("error", (*error).to_owned()),
        ];
        fields.extend(request_id.map(|id| ("request_id", id.to_owned())));
        bus.publish_external("event_parked", fields);
    }
}
