//! The log lines of published events, which make a request traceable through the relay.
use ports::broker::Position;
use ports::orders::order_of_event;
use ports::outbox::{ClaimedRow, RowId};
use tracing::Level;
use tracing::field::display;

/// Logs each row of a batch that the broker has acknowledged. It costs nothing unless DEBUG is on.
pub fn write(rows: &[ClaimedRow], positions: &[(RowId, Position)]) {
    if !tracing::enabled!(Level::DEBUG) {
        return;
    }
    for (id, Position { topic, partition, offset }) in positions {
        let Some(row) = rows.iter().find(|row| row.id == *id) else { continue };
        let ClaimedRow { event_id, key, event_type: r#type, attempt, request_id, .. } = row;
        let (order_id, request_id) = (order_of_event(r#type, key).map(display), request_id.as_deref());
        tracing::debug!(
            event = "event_published", %event_id, order_id, request_id, %key, r#type = &**r#type, row = id, attempt, topic = &**topic, partition,
            offset, "event {event_id} of key {key} was published in attempt {attempt}"
        );
    }
}
