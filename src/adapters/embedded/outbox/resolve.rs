//! Resolve: closes an open batch by its known outcome.
use std::collections::BTreeSet;

use outbox::RowChange;
use ports::outbox::{BatchOutcome, FencedOutcome};
use ports::partitions::{Fence, Token};

use super::open_batch::{self, BatchPlace, KeyBytes};
use super::settle::{self, SentPositions};
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease;

/// Closes an open batch under the fence.
pub(crate) fn resolve(
    context: &mut WriteContext<'_>,
    fence: &Fence,
    token: Token,
    outcome: BatchOutcome,
) -> CommandResult<FencedOutcome> {
    let Some(row) = lease::read(context, fence.partition)? else { return Ok(FencedOutcome::Stale) };
    let Some(open) = row.lease.open_batch_at_counter(fence, token) else {
        return Ok(row.lease.repeated_close(fence, token));
    };
    let batch = BatchPlace::of(fence.partition.0, &row, open);
    let rows = match outcome {
        BatchOutcome::Published => settle::archive(context, batch, &SentPositions::default())?,
        BatchOutcome::ClaimerDied | BatchOutcome::NotSent => return_rows(context, batch, outcome, open.trial)?,
    };
    let counter = lease::close(context, fence.partition, &row.lease)?;
    Ok(FencedOutcome::Done { counter, rows })
}

fn return_rows(
    context: &mut WriteContext<'_>,
    batch: BatchPlace,
    outcome: BatchOutcome,
    trial: bool,
) -> CommandResult<u64> {
    // Rows far below the scan's start are ready again.
    context.scan_starts.remove(&batch.partition);
    let rows = open_batch::rows(context, batch)?;
    let changes: Vec<RowChange<KeyBytes>> = rows.iter().filter_map(|row| outcome.row_change(row, trial)).collect();
    open_batch::write(context, batch.partition, &changes)?;
    let blocking = rows.iter().filter(|row| row.blocks_key).map(|row| row.key);
    let waiting = changes.iter().filter(|change| change.state.due_in().is_some() || change.state.blocks_key());
    let keys: BTreeSet<KeyBytes> = blocking.chain(waiting.map(|change| change.key)).collect();
    open_batch::refresh_blocks(context, batch.partition, keys)?;
    Ok(rows.len() as u64)
}
