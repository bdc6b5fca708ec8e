//! Changes or cancels an order: check the gate, load, check visibility and versions, decide in the domain, commit once.
use std::sync::Arc;

use domain::{ChangeContext, ChangeRefusal, Hlc, Order};
use ports::orders::{Commit, CommitOutcome, NewRow};

use super::context::{CommandContext, CommitProgress};
use crate::dispatch::{ChangeOrder, ChangePreconditions, IfMatch};
use crate::error::CommandError;
use crate::policy::conflict::{self, VersionStamp};

/// Result of a change, with the rows to publish directly where there is no outbox.
#[derive(Clone, Debug)]
pub struct ChangeOutcome {
    /// The order after the change.
    pub order: Arc<Order>,
    /// Rows of the commit.
    pub rows: Vec<NewRow>,
}

/// Limit of retries of a change without a version after a concurrent change of the order.
const CONCURRENT_CHANGES_MAX: u32 = 3;

/// Changes or cancels one order.
///
/// # Errors
/// Every [`CommandError`] but `Unknown` means that nothing was changed.
pub async fn change_order(
    context: &CommandContext,
    command: &ChangeOrder,
    progress: &CommitProgress,
) -> Result<ChangeOutcome, CommandError> {
    context.gate.check().map_err(CommandError::Gated)?;
    let mut concurrent_changes = 0;
    loop {
        let started_at = context.clock.now();
        let current = context.orders.find(command.id).await?.filter(|order| command.viewer.sees(order));
        let current = current.ok_or(CommandError::NotFound)?;
        let (order, rows) = match decide(context, command, &current).await {
            Ok(decided) => decided,
            Err(refused) => {
                context.repair_cache(current, started_at).await;
                return Err(refused);
            }
        };
        match commit(context, &current, &order, &rows, progress).await? {
            CommitOutcome::Done => {
                let order = Arc::new(order);
                context.update_cache(&order, started_at).await;
                return Ok(ChangeOutcome { order, rows });
            }
            CommitOutcome::Missing => return Err(CommandError::NotFound),
            CommitOutcome::KeyUsed(_) => {
                return Err(CommandError::Unknown("the store reported an idempotency key for a change".into()));
            }
            CommitOutcome::Stale { .. } if concurrent_changes < CONCURRENT_CHANGES_MAX => concurrent_changes += 1,
            CommitOutcome::Stale { current } => {
                return Err(CommandError::Conflict(format!("the order changed meanwhile; it is at version {current}")));
            }
        }
    }
}

/// Checks `If-Match` before the body's version.
fn check(preconditions: &ChangePreconditions, order: &Order) -> Result<(), CommandError> {
    if let Some(IfMatch::OneOf(versions)) = &preconditions.if_match
        && !versions.contains(&order.version)
    {
        return Err(CommandError::PreconditionFailed { current: order.version });
    }
    preconditions.version.map_or(Ok(()), |version| order.check_version(version)).map_err(refused)
}

fn refused(refusal: ChangeRefusal) -> CommandError {
    CommandError::Conflict(refusal.to_string())
}

async fn decide(
    context: &CommandContext,
    command: &ChangeOrder,
    current: &Order,
) -> Result<(Order, Vec<NewRow>), CommandError> {
    check(&command.preconditions, current)?;
    // Another instance of this region may have consumed it, so the clock of this one is not enough.
    let remote = context.inbox.remote_stamp(command.id).await?.map(VersionStamp::from);
    let now = context.clock.now();
    let received = remote.as_ref().map_or(Hlc::default(), |remote| remote.hlc);
    let received = context.regional_clock.latest_with(received, now);
    let (event_id, region) = (context.event_id(now), context.options.region.clone());
    let change = ChangeContext { event_id, region, now, physical_time: context.physical_time(now), received };
    let (order, event) = current.change_status(command.to, change).map_err(refused)?;
    let latest_accepted_time = context.regional_clock.latest_accepted_time(now);
    conflict::check_change(current, remote.as_ref(), &order, latest_accepted_time)
        .map_err(CommandError::RegionConflict)?;
    let row = context.options.row(&event, command.trace.clone(), command.request_id.clone());
    Ok((order, vec![row]))
}

async fn commit(
    context: &CommandContext,
    current: &Order,
    order: &Order,
    rows: &[NewRow],
    progress: &CommitProgress,
) -> Result<CommitOutcome, CommandError> {
    let events = if context.options.outbox { rows.to_vec() } else { Vec::new() };
    let commit = Commit { order: order.clone(), expected: Some(current.version), events, idempotency_record: None };
    let call = progress.begin_commit()?;
    let committed = context.orders.commit(commit).await;
    drop(call);
    let unknown = matches!(&committed, Err(error) if error.outcome_unknown());
    if unknown {
        context.evict_order_and_lists(order.id, order.version, &order.owner).await;
    } else if !matches!(&committed, Ok(CommitOutcome::Done)) {
        progress.nothing_changed();
    }
    Ok(committed?)
}
