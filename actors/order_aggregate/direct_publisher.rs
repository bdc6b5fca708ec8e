//! DirectPublisher: publishes without an outbox (`outbox.enabled = false`), fire and forget.
use std::sync::Arc;

use app::relay::{self, RecordEnvelope};
use ports::broker::Broker;
use ports::orders::NewRow;
use ports::outbox::ClaimedRow;
use telemetry::Metrics;
use tracing::Instrument;

/// Publishes rows that no outbox stores. An event whose publish fails is lost; it is counted and logged.
#[derive(Clone)]
pub struct DirectPublisher {
    broker: Arc<dyn Broker>,
    envelope: RecordEnvelope,
    metrics: Arc<Metrics>,
}

impl DirectPublisher {
    /// A publisher that sends to this broker.
    pub fn new(broker: Arc<dyn Broker>, envelope: RecordEnvelope, metrics: Arc<Metrics>) -> Self {
        Self { broker, envelope, metrics }
    }

    /// Sends rows to the broker and does not wait for the result.
    pub fn publish(&self, rows: Vec<NewRow>) {
        // A repeated request has changed nothing.
        if rows.is_empty() {
            return;
        }
        let this = self.clone();
        let records = rows.iter().map(|row| this.record(row)).collect();
        // Not tied to the actor's life: no caller waits for the result, and nothing depends on it.
        let publish = async move {
            match this.broker.append(records).await {
                Ok(positions) => this.metrics.outbox_entries_delivered.inc_by(positions.len() as u64),
                Err(error) => {
                    this.metrics.outbox_entries_failed.inc_by(rows.len() as u64);
                    for row in &rows {
                        let (order_id, event_id) = (&row.key, row.event_id);
                        tracing::error!(event = "direct_publish_failed", %order_id, %event_id, error = %error, "an event was lost: the outbox is switched off");
                    }
                }
            }
        };
        tokio::task::spawn_local(publish.in_current_span());
    }

    fn record(&self, row: &NewRow) -> ports::broker::Record {
        let claimed = ClaimedRow {
            id: 0,
            event_id: row.event_id,
            key: row.key.clone(),
            event_type: Arc::clone(&row.event_type),
            topic: Arc::clone(&row.topic),
            payload: None,
            sequence: row.sequence,
            occurred_at: row.occurred_at,
            stamp: row.stamp.clone(),
            trace: row.trace.clone(),
            request_id: row.request_id.clone(),
            headers: row.headers.clone(),
            content_type: row.content_type.clone(),
            contract_checksum: row.contract_checksum,
            attempt: 1,
            created_at: row.occurred_at,
        };
        relay::record(&claimed, &row.payload, &self.envelope)
    }
}
