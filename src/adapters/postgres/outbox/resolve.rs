//! Resolving an open batch whose outcome was established after its producer session was fenced.
use std::collections::HashMap;

use outbox::{BatchOutcome, FencedOutcome, LeaseFence, OutboxRow, PoisonPolicy, RowId, Token};
use ports::outbox::{PoisonRow, ResolvedBatch, RowEvent};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::Transaction;
use crate::connection::sql_value::{event_id, get};
use crate::connection::statement_error::StatementResult;
use crate::leases::lease_row;
use crate::outbox::{open_batch, row_changes, settle};
use crate::store::context::StoreContext;

/// Closes an open batch under the fence.
pub(crate) async fn resolve(
    context: &StoreContext,
    fence: &LeaseFence,
    token: Token,
    outcome: BatchOutcome,
    poison: &PoisonPolicy,
) -> StatementResult<ResolvedBatch> {
    let partition = fence.partition;
    if outcome == BatchOutcome::Published {
        return Ok(settle::settle_published(context, fence, token).await?.into());
    }
    context.scan_starts.take(partition.0);
    let (transaction, lease) = lease_row::lock_with_permit(context, partition).await?;
    let Some(open) = lease.as_ref().and_then(|lease| lease.open_batch_at_counter(fence, token)) else {
        transaction.rollback().await?;
        return Ok(lease.map_or(FencedOutcome::Stale, |lease| lease.repeated_close(fence, token)).into());
    };
    let batch = open_batch::read(&transaction, partition, token).await?;
    // Only a trial's row is ever parked as poison, by the rule of its topic and event type.
    let events = if open.trial { events(&transaction, &batch).await? } else { HashMap::new() };
    let trial_rule = |row: RowId| events.get(&row).map(|event| poison.value_for(&event.topic, &event.event_type));
    let changes: Vec<_> = batch.iter().filter_map(|row| outcome.row_change(row, trial_rule(row.id))).collect();
    row_changes::apply(&transaction, partition, &changes).await?;
    let counter = lease_row::close_batch(&transaction, partition).await?;
    transaction.commit().await?;
    let parked = changes.iter().filter_map(|change| {
        let event = events.get(&change.id)?;
        PoisonRow::from_change(change, *change.key.as_bytes(), event)
    });
    Ok(ResolvedBatch { closed: FencedOutcome::Done { counter, rows: changes.len() as u64 }, parked: parked.collect() })
}

/// The event of each row.
async fn events(transaction: &Transaction, batch: &[OutboxRow<Uuid>]) -> StatementResult<HashMap<RowId, RowEvent>> {
    let ids: Vec<RowId> = batch.iter().map(|row| row.id).collect();
    let text = "SELECT i.id, e.event_id, e.type, e.key_text, e.request_id, e.topic FROM unnest($1::int8[]) i (id) \
         LEFT JOIN outbox_event e ON e.id = i.id";
    let rows = transaction.query(text, &[(&ids, Type::INT8_ARRAY)]).await?;
    let event = |row| {
        let id = event_id(get::<Option<_>>(row, 1)?.unwrap_or_default());
        let event_type = get::<Option<&str>>(row, 2)?.unwrap_or_default().into();
        let request_id = get::<Option<&str>>(row, 4)?.map(Into::into);
        let topic = get::<Option<&str>>(row, 5)?.unwrap_or_default().into();
        Ok((get(row, 0)?, RowEvent { id, topic, event_type, key_text: get(row, 3)?, request_id }))
    };
    rows.iter().map(event).collect()
}
