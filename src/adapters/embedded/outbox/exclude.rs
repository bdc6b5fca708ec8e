//! Exclude: rows that cannot be sent leave an open batch before it is published, together with the later rows of their keys. The rest
//! gets a new token.
use std::collections::BTreeSet;

use outbox::exclusion;
use ports::outbox::{Exclusion, ExclusionOutcome};
use ports::partitions::{LeaseFence, Token};

use super::open_batch::{self, BatchRange, KeyBytes};
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease;

/// Excludes rows under the fence. The batch stays open for the rest, under the new counter as its token.
pub(crate) fn exclude(
    context: &mut WriteContext<'_>,
    fence: &LeaseFence,
    token: Token,
    exclusions: &[Exclusion],
) -> CommandResult<ExclusionOutcome> {
    let partition = fence.partition.0;
    let Some(row) = lease::read(context, fence.partition)? else { return Ok(ExclusionOutcome::Stale) };
    let Some(open) = row.lease.open_batch_at_counter(fence, token) else { return Ok(ExclusionOutcome::Stale) };
    let batch = BatchRange::new(partition, &row, open);
    let rows = open_batch::rows(context, batch)?;
    let Some(changes) = exclusion::changes(&rows, exclusions) else { return Ok(ExclusionOutcome::Stale) };
    open_batch::write(context, partition, &changes)?;
    let keys: BTreeSet<KeyBytes> = changes.iter().map(|change| change.key).collect();
    open_batch::refresh_blocks(context, partition, keys)?;
    let new_token = fence.next_token();
    open_batch::change_token(context, batch, new_token)?;
    Ok(ExclusionOutcome::Done { token: new_token, rows: changes.len() as u64 })
}
