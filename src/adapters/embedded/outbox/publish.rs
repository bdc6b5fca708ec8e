//! Events of other services: a batch is written as a whole or not at all, and the store numbers the events of each key.
use std::collections::HashSet;

use async_trait::async_trait;
use domain::EventId;
use ports::Error;
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore, ExternalEvent};
use rusqlite::params;

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::orders::commit::{insert_event, insert_idempotency_record, taken_idempotency_record};
use crate::store::Embedded;

#[async_trait]
impl EventStore for Embedded {
    async fn publish(&self, batch: EventBatch) -> Result<EventBatchOutcome, Error> {
        if let Some(event) = batch.events.iter().find(|event| event.partition.0 >= self.inner.partitions) {
            let (id, partition) = (event.event_id, event.partition);
            return Err(Error::Rejected(format!("event {id}: there is no partition {partition}")));
        }
        self.write_without_savepoint("events_publish", move |context| publish(context, batch)).await
    }
}

fn publish(context: &mut WriteContext<'_>, batch: EventBatch) -> CommandResult<EventBatchOutcome> {
    if let Some(idempotency_record) = &batch.idempotency_record
        && let Some(taken) = taken_idempotency_record(context, idempotency_record)?
    {
        return Ok(EventBatchOutcome::KeyUsed(taken));
    }
    let is_new = new_events(context, &batch.events)?;
    context.begin_writing();
    if let Some(idempotency_record) = &batch.idempotency_record {
        insert_idempotency_record(context, idempotency_record)?;
    }
    let now = context.now;
    for (event, _) in batch.events.into_iter().zip(&is_new).filter(|(_, is_new)| **is_new) {
        let sequence = next_sequence(context, &event)?;
        insert_event(context, &event.into_row(sequence, now))?;
    }
    Ok(EventBatchOutcome::Done { is_new })
}

/// For each event whether it was published neither before nor earlier in the batch.
fn new_events(context: &WriteContext<'_>, events: &[ExternalEvent]) -> CommandResult<Vec<bool>> {
    let mut statement = context.sql.prepare_cached("SELECT 1 FROM outbox_event WHERE event_id = ?1")?;
    let mut seen: HashSet<EventId> = HashSet::new();
    events.iter().map(|event| Ok(seen.insert(event.event_id) && !statement.exists([event.event_id.bytes()])?)).collect()
}

fn next_sequence(context: &WriteContext<'_>, event: &ExternalEvent) -> CommandResult<u64> {
    let mut statement = context.sql.prepare_cached(
        "INSERT INTO outbox_sequence (topic, key, last) VALUES (?1, ?2, 1)
         ON CONFLICT (topic, key) DO UPDATE SET last = last + 1 RETURNING last",
    )?;
    let last: i64 = statement.query_row(params![&*event.topic, event.key.group()], |row| row.get(0))?;
    Ok(last as u64)
}
