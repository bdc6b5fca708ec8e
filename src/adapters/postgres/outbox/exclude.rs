//! Excluding rows from an open batch before it is published. The rest gets a new token.
use outbox::{Exclusion, ExclusionOutcome, LeaseFence, RowId, Token, exclusion};

use crate::connection::statement_error::StatementResult;
use crate::leases::lease_row;
use crate::outbox::{open_batch, row_changes};
use crate::store::context::StoreContext;

/// Excludes rows under the fence. The batch stays open for the rest, under the new counter as its token.
pub(crate) async fn exclude(
    context: &StoreContext,
    fence: &LeaseFence,
    token: Token,
    exclusions: &[Exclusion],
) -> StatementResult<ExclusionOutcome> {
    let partition = fence.partition;
    context.scan_starts.take(partition.0);
    let (transaction, lease) = lease_row::lock_with_permit(context, partition).await?;
    let open = lease.as_ref().is_some_and(|lease| lease.open_batch_at_counter(fence, token).is_some());
    let changes = if open {
        exclusion::changes(&open_batch::read(&transaction, partition, token).await?, exclusions)
    } else {
        None
    };
    let Some(changes) = changes else {
        transaction.rollback().await?;
        return Ok(ExclusionOutcome::Stale);
    };
    row_changes::apply(&transaction, partition, &changes).await?;
    let excluded: Vec<RowId> = changes.iter().map(|change| change.id).collect();
    let token = lease_row::remove_from_batch(&transaction, partition, &excluded).await?;
    transaction.commit().await?;
    Ok(ExclusionOutcome::Done { token, rows: changes.len() as u64 })
}
