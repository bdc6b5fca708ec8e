//! Resolve: closes an open batch by its known outcome.
use std::collections::{BTreeSet, HashMap};

use domain::EventId;
use outbox::{OutboxRow, RowChange};
use ports::outbox::{BatchOutcome, FencedOutcome, PoisonPolicy, PoisonRow, ResolvedBatch, RowEvent, RowId};
use ports::partitions::{LeaseFence, Token};
use rusqlite::{OptionalExtension, Row};

use super::open_batch::{self, BatchRange, KeyBytes};
use super::settle::{self, SentPositions};
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease;

/// Closes an open batch under the fence.
pub(crate) fn resolve(
    context: &mut WriteContext<'_>,
    fence: &LeaseFence,
    token: Token,
    outcome: BatchOutcome,
    poison: &PoisonPolicy,
) -> CommandResult<ResolvedBatch> {
    let Some(row) = lease::read(context, fence.partition)? else { return Ok(FencedOutcome::Stale.into()) };
    let Some(open) = row.lease.open_batch_at_counter(fence, token) else {
        return Ok(row.lease.repeated_close(fence, token).into());
    };
    let batch = BatchRange::new(fence.partition.0, &row, open);
    let (rows, parked) = match outcome {
        BatchOutcome::Published => (settle::archive(context, batch, &SentPositions::default())?, Vec::new()),
        BatchOutcome::ClaimerDied | BatchOutcome::NotSent => {
            return_rows(context, batch, outcome, open.trial.then_some(poison))?
        }
    };
    let counter = lease::close(context, fence.partition, &row.lease)?;
    Ok(ResolvedBatch { closed: FencedOutcome::Done { counter, rows }, parked })
}

/// Returns the batch's rows to the states that the outcome gives them. `trial` is the policy for poison rows if the batch was a trial.
/// Returns the number of rows, and those that were parked.
fn return_rows(
    context: &mut WriteContext<'_>,
    batch: BatchRange,
    outcome: BatchOutcome,
    trial: Option<&PoisonPolicy>,
) -> CommandResult<(u64, Vec<PoisonRow>)> {
    // Rows far below the scan's start are ready again.
    context.scan_starts.remove(&batch.partition);
    let rows = open_batch::rows(context, batch)?;
    let events = if trial.is_some() { events(context, &rows)? } else { HashMap::new() };
    let rule = |row: &OutboxRow<KeyBytes>| {
        trial.zip(events.get(&row.id)).map(|(poison, event)| poison.value_for(&event.topic, &event.event_type))
    };
    let changes: Vec<RowChange<KeyBytes>> = rows.iter().filter_map(|row| outcome.row_change(row, rule(row))).collect();
    open_batch::write(context, batch.partition, &changes)?;
    let blocking = rows.iter().filter(|row| row.blocks_key).map(|row| row.key);
    let waiting = changes.iter().filter(|change| change.state.due_in().is_some() || change.state.blocks_key());
    let keys: BTreeSet<KeyBytes> = blocking.chain(waiting.map(|change| change.key)).collect();
    open_batch::refresh_blocks(context, batch.partition, keys)?;
    let parked = changes.iter().filter_map(|change| {
        let event = events.get(&change.id)?;
        PoisonRow::from_change(change, change.key, event)
    });
    Ok((rows.len() as u64, parked.collect()))
}

/// The event of each row.
fn events(context: &WriteContext<'_>, rows: &[OutboxRow<KeyBytes>]) -> CommandResult<HashMap<RowId, RowEvent>> {
    let mut event = context
        .sql
        .prepare_cached("SELECT event_id, type, key_text, request_id, topic FROM outbox_event WHERE id = ?1")?;
    let mut events = HashMap::new();
    for row in rows {
        let found: Option<RowEventColumns> = event.query_row([row.id], event_columns).optional()?;
        let (id, event_type, key_text, request_id, topic) = found.unwrap_or_default();
        let id = EventId::from_bytes(id.unwrap_or_default());
        let (topic, event_type) = (topic.unwrap_or_default().into(), event_type.unwrap_or_default().into());
        events.insert(row.id, RowEvent { id, topic, event_type, key_text, request_id: request_id.map(Into::into) });
    }
    Ok(events)
}

/// Id, type, key text, request id, topic.
type RowEventColumns = (Option<[u8; 16]>, Option<String>, Option<String>, Option<String>, Option<String>);

fn event_columns(row: &Row<'_>) -> rusqlite::Result<RowEventColumns> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
}
