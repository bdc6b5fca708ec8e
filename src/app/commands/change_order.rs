//! Moves an order on, or withdraws it: gate → find → who sees it → versions → the domain's word → one commit.
use std::sync::Arc;

use domain::{ChangeContext, Order};
use ports::orders::{Commit, Committed, NewRow};

use super::context::{CommandContext, CommitProgress};
use crate::dispatch::{ChangeOrder, ChangePreconditions, IfMatch};
use crate::error::CommandError;
use crate::policy::conflict;

/// The changed order, with the rows to publish directly where there is no outbox.
#[derive(Clone, Debug)]
pub struct ChangeOutcome {
    /// The order as it is now.
    pub order: Arc<Order>,
    /// The rows that were committed.
    pub rows: Vec<NewRow>,
}

/// How often a change whose caller named no version is tried against a store that moved on meanwhile.
const RACES_MAX: u32 = 3;

/// Carries out one change.
///
/// # Errors
/// As [`CommandError`] says; every one but `Unknown` means that nothing changed.
pub async fn change_order(
    desk: &CommandContext,
    command: &ChangeOrder,
    reach: &CommitProgress,
) -> Result<ChangeOutcome, CommandError> {
    desk.gate.pass().map_err(CommandError::Gated)?;
    let mut races = 0;
    loop {
        let current = desk.orders.find(command.id).await?.filter(|order| command.viewer.sees(order));
        let current = current.ok_or(CommandError::NotFound)?;
        judge(&command.preconditions, current.version)?;
        let (order, rows) = decide(desk, command, &current)?;
        match commit(desk, &current, &order, &rows, reach).await? {
            Committed::Done => {
                let order = Arc::new(order);
                desk.show(&order).await;
                return Ok(ChangeOutcome { order, rows });
            }
            Committed::Missing => return Err(CommandError::NotFound),
            Committed::KeyUsed(_) => return Err(CommandError::Unknown("a change has no mark".into())),
            Committed::Stale { .. } if races < RACES_MAX => races += 1,
            Committed::Stale { current } => {
                return Err(CommandError::Conflict(format!("the order changed meanwhile; it is at version {current}")));
            }
        }
    }
}

/// `If-Match` is judged before the body's version.
fn judge(expect: &ChangePreconditions, current: u64) -> Result<(), CommandError> {
    if let Some(IfMatch::OneOf(versions)) = &expect.if_match
        && !versions.contains(&current)
    {
        return Err(CommandError::PreconditionFailed { current });
    }
    match expect.version {
        Some(version) if version != current => {
            Err(CommandError::Conflict(format!("the order is at version {current}, not {version}")))
        }
        _ => Ok(()),
    }
}

fn decide(desk: &CommandContext, command: &ChangeOrder, current: &Order) -> Result<(Order, Vec<NewRow>), CommandError> {
    let now = desk.clock.now();
    let change = ChangeContext { event_id: desk.event_id(now), region: desk.options.region.clone(), now };
    let changed = current.change_status(command.to, change);
    let (order, event) = changed.map_err(|refusal| CommandError::Conflict(refusal.to_string()))?;
    conflict::check_change(current, &order, now).map_err(CommandError::RegionConflict)?;
    let row = desk.options.row(&event, command.trace.clone());
    Ok((order, vec![row]))
}

async fn commit(
    desk: &CommandContext,
    current: &Order,
    order: &Order,
    rows: &[NewRow],
    reach: &CommitProgress,
) -> Result<Committed, CommandError> {
    let events = if desk.options.outbox { rows.to_vec() } else { Vec::new() };
    let commit = Commit { order: order.clone(), expected: Some(current.version), events, mark: None };
    reach.mark();
    let committed = desk.orders.commit(commit).await;
    let known =
        !matches!(&committed, Ok(Committed::Done)) && !matches!(&committed, Err(error) if error.outcome_unknown());
    if known {
        reach.clear();
    }
    Ok(committed?)
}
