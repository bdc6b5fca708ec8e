//! Resolving an open batch whose outcome was established after its producer session was fenced.
use outbox::{BatchOutcome, Fence, FencedOutcome, Token};

use crate::connection::statement_error::StatementResult;
use crate::leases::lease_row;
use crate::outbox::{open_batch, row_changes, settle};
use crate::store::core::Core;

/// Closes an open batch under the fence.
pub(crate) async fn resolve(
    core: &Core,
    fence: &Fence,
    token: Token,
    outcome: BatchOutcome,
) -> StatementResult<FencedOutcome> {
    let partition = fence.partition;
    if outcome == BatchOutcome::Published {
        return settle::settle_published(core, fence, token).await;
    }
    core.scan_memory.take(partition.0);
    let (transaction, lease) = lease_row::lock(core.relay_session().await?, partition).await?;
    let Some(open) = lease.as_ref().and_then(|lease| lease.open_batch_at_counter(fence, token)) else {
        transaction.rollback().await?;
        return Ok(lease.map_or(FencedOutcome::Stale, |lease| lease.repeated_close(fence, token)));
    };
    let batch = open_batch::read(&transaction, partition, token).await?;
    let changes: Vec<_> = batch.iter().filter_map(|row| outcome.row_change(row, open.trial)).collect();
    row_changes::apply(&transaction, partition, &changes).await?;
    let counter = lease_row::close_batch(&transaction, partition).await?;
    transaction.commit().await?;
    Ok(FencedOutcome::Done { counter, rows: changes.len() as u64 })
}
