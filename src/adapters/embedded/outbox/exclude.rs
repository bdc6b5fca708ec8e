//! Exclude: rows that cannot be sent leave an open batch before it is published, together with the later rows of their keys.
use std::collections::BTreeSet;

use outbox::exclusion;
use ports::outbox::{Exclusion, FencedOutcome};
use ports::partitions::{Fence, Token};

use super::open_batch::{self, BatchPlace, KeyBytes};
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease;

/// Excludes rows under the fence. The batch stays open for the rest.
pub(crate) fn exclude(
    context: &mut WriteContext<'_>,
    fence: &Fence,
    token: Token,
    exclusions: &[Exclusion],
) -> CommandResult<FencedOutcome> {
    let partition = fence.partition.0;
    let Some(row) = lease::read(context, fence.partition)? else { return Ok(FencedOutcome::Stale) };
    let Some(open) = row.lease.open_batch_at_counter(fence, token) else { return Ok(FencedOutcome::Stale) };
    let rows = open_batch::rows(context, BatchPlace::of(partition, &row, open))?;
    let Some(changes) = exclusion::changes(&rows, exclusions) else { return Ok(FencedOutcome::Stale) };
    open_batch::write(context, partition, &changes)?;
    let keys: BTreeSet<KeyBytes> = changes.iter().map(|change| change.key).collect();
    open_batch::refresh_blocks(context, partition, keys)?;
    let counter = lease::raise(context, partition)?;
    Ok(FencedOutcome::Done { counter, rows: changes.len() as u64 })
}
