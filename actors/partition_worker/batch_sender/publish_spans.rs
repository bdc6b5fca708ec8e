//! PublishSpans: a span for each traced event of a batch, from the handover to the broker until its answer.
use std::collections::HashMap;

use ports::broker::{Position, PublishOutcome, Record};
use ports::outbox::{ClaimedRow, RowId};
use ports::partitions::PartitionNo;
use telemetry::traces::{ActiveSpan, SpanContext, SpanKind};

use crate::partition_worker::context::RelayContext;
use crate::partition_worker::in_flight_batch::InFlightBatch;

/// The spans of the records that one call hands over. Empty where tracing is off, or no event has a sampled trace.
pub struct PublishSpans(Vec<(RowId, ActiveSpan)>);

impl PublishSpans {
    /// Begins a span for each unsent record whose row names a sampled trace.
    pub fn begin(context: &RelayContext, batch: &InFlightBatch, partition: PartitionNo) -> Self {
        if !context.tracer.is_on() {
            return Self(Vec::new());
        }
        let traced = batch.rows.iter().filter_map(|row| {
            let parent = SpanContext::parse(&row.trace.as_ref()?.parent).filter(|parent| parent.is_sampled)?;
            // The records are in id order.
            let unsent = batch.unsent.binary_search_by_key(&row.id, |(id, _)| *id).ok()?;
            let mut span = begin(context, parent, row, &batch.unsent[unsent].1);
            span.set("posthaste.outbox.wait_ms", batch.age(row));
            span.set("posthaste.partition", u64::from(partition.0));
            span.set("posthaste.token", batch.token);
            Some((row.id, span))
        });
        Self(traced.collect())
    }

    /// Ends the spans with the broker's answer.
    pub fn end(self, published: &PublishOutcome) {
        if self.0.is_empty() {
            return;
        }
        let (sent, error_type) = match published {
            PublishOutcome::Committed(positions) => (positions.as_slice(), "not_sent"),
            PublishOutcome::Partial { sent, .. } => (sent.as_slice(), "refused"),
            PublishOutcome::RowsRefused(_) | PublishOutcome::Aborted { .. } => (Default::default(), "aborted"),
            PublishOutcome::Unknown(_) => (Default::default(), "unknown_outcome"),
            PublishOutcome::SessionLost(_) => (Default::default(), "session_lost"),
        };
        let sent: HashMap<RowId, &Position> = sent.iter().map(|(row, position)| (*row, position)).collect();
        for (row, mut span) in self.0 {
            match sent.get(&row) {
                Some(Position { partition, offset, .. }) => {
                    span.set_text("messaging.destination.partition.id", partition);
                    span.set("messaging.kafka.offset", *offset);
                }
                None => span.fail(error_type),
            }
        }
    }
}

fn begin(context: &RelayContext, parent: SpanContext, row: &ClaimedRow, record: &Record) -> ActiveSpan {
    let topic = &record.topic;
    let mut span = context.tracer.child(Some(parent), SpanKind::Producer, format_args!("publish {topic}"));
    span.set("messaging.operation.type", "send");
    span.set_text("messaging.destination.name", topic);
    span.set_text("messaging.message.id", row.event_id);
    span.set_text("messaging.kafka.message.key", &record.key);
    span.set_text("posthaste.event_type", &row.event_type);
    span.set("posthaste.attempt", u64::from(row.attempt));
    span
}
