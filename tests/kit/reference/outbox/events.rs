//! Events of other services in the reference.
use async_trait::async_trait;
use ports::Error;
use ports::outbox::events::{BatchCommit, EventBatch, EventStore};

use crate::reference::state::{PARTITIONS, Reference};

#[async_trait]
impl EventStore for Reference {
    async fn publish(&self, batch: EventBatch) -> Result<BatchCommit, Error> {
        if let Some(event) = batch.events.iter().find(|event| event.partition.0 >= PARTITIONS) {
            return Err(Error::Rejected(format!("writing event {}: no partition {}", event.event_id, event.partition)));
        }
        let now = self.now();
        let mut state = self.state.lock();
        if let Some(idempotency_record) = batch.idempotency_record {
            let key = (idempotency_record.subject.clone(), idempotency_record.key.clone());
            if let Some((used, _)) = state.idempotency_records.get(&key) {
                return Ok(BatchCommit::KeyUsed(used.clone()));
            }
            state.idempotency_records.insert(key, (idempotency_record, now));
        }
        let mut is_new = Vec::with_capacity(batch.events.len());
        for event in batch.events {
            let known = state.rows.values().any(|row| row.event.event_id == event.event_id);
            is_new.push(!known);
            if known {
                continue;
            }
            let last = state.sequences.entry((event.topic.clone(), event.key.clone())).or_default();
            *last += 1;
            let (sequence, id) = (*last, state.last_row + 1);
            state.write(id, event.into_row(sequence, now), now);
        }
        Ok(BatchCommit::Done { is_new })
    }
}
