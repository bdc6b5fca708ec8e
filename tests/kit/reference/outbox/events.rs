//! Events of other services in the reference.
use async_trait::async_trait;
use domain::{EventId, Timestamp};
use ports::Error;
use ports::outbox::RowId;
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore};

use crate::reference::state::{Reference, State};

impl State {
    /// Publishes a batch, and gives its new events the ids from `first_row` on; an event for which `is_known` returns true takes none.
    pub(crate) fn commit_batch(
        &mut self,
        batch: EventBatch,
        first_row: RowId,
        now: Timestamp,
        is_known: fn(&State, EventId) -> bool,
    ) -> Result<EventBatchOutcome, Error> {
        if let Some(event) = batch.events.iter().find(|event| event.partition.0 as usize >= self.leases.len()) {
            return Err(Error::Rejected(format!("writing event {}: no partition {}", event.event_id, event.partition)));
        }
        if let Some(idempotency_record) = batch.idempotency_record {
            let key = (idempotency_record.subject.clone(), idempotency_record.key.clone());
            if let Some((used, _)) = self.idempotency_records.get(&key) {
                return Ok(EventBatchOutcome::KeyUsed(used.clone()));
            }
            self.idempotency_records.insert(key, (idempotency_record, now));
        }
        let (mut next_row, mut is_new) = (first_row, Vec::with_capacity(batch.events.len()));
        for event in batch.events {
            let known = is_known(self, event.event_id);
            is_new.push(!known);
            if known {
                continue;
            }
            let last = self.sequences.entry((event.topic.clone(), event.key.clone())).or_default();
            *last += 1;
            let row = event.into_row(*last, now);
            self.write(next_row, row, now);
            next_row += 1;
        }
        Ok(EventBatchOutcome::Done { is_new })
    }

    /// Whether a row has this event.
    pub(crate) fn has_event(&self, event_id: EventId) -> bool {
        self.rows.values().any(|row| row.event.event_id == event_id)
    }
}

#[async_trait]
impl EventStore for Reference {
    async fn publish(&self, batch: EventBatch) -> Result<EventBatchOutcome, Error> {
        let mut state = self.state.lock();
        let first_row = state.last_row + 1;
        state.commit_batch(batch, first_row, self.now(), State::has_event)
    }
}
