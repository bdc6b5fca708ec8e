//! The rows of an open batch, and the changes that the rules decide for them.
use outbox::{FailureType, OpenClaim, OutboxRow, RowChange, Token};
use rusqlite::params;

use super::blocked_keys;
use super::counts::code;
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease::LeaseRow;
use crate::units::millis;

/// A row's key as the file stores it.
pub(crate) type KeyBytes = [u8; 16];

/// The rows of an open batch: those of the partition with this token whose ids lie in `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchRange {
    pub(crate) partition: u32,
    pub(crate) token: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl BatchRange {
    pub(crate) fn new(partition: u32, row: &LeaseRow, open: &OpenClaim) -> Self {
        Self { partition, token: open.token as i64, first: row.first_id, last: row.last_id }
    }
}

/// The rows that still belong to the batch, in id order.
pub(crate) fn rows(context: &WriteContext<'_>, batch: BatchRange) -> CommandResult<Vec<OutboxRow<KeyBytes>>> {
    let mut statement = context.sql.prepare_cached(
        "SELECT q.id, q.key, q.attempts, q.deaths, q.trial_deaths, EXISTS (SELECT 1 FROM outbox_blocked b
           WHERE b.partition = q.partition AND b.key = q.key AND b.head_id = q.id)
         FROM outbox q WHERE q.partition = ?1 AND q.id BETWEEN ?2 AND ?3 AND q.status = 1 AND q.lease_version = ?4 ORDER BY q.id",
    )?;
    let rows = statement.query_map(params![batch.partition, batch.first, batch.last, batch.token], |row| {
        Ok(OutboxRow {
            id: row.get(0)?,
            key: row.get(1)?,
            attempts: row.get(2)?,
            deaths: row.get(3)?,
            trial_deaths: row.get(4)?,
            blocks_key: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Writes changes of rows that are IN_FLIGHT. The caller refreshes the blocks of their keys.
pub(crate) fn write(
    context: &mut WriteContext<'_>,
    partition: u32,
    changes: &[RowChange<KeyBytes>],
) -> CommandResult<()> {
    let now = context.now.millis();
    let sql = context.sql;
    let mut update = sql.prepare_cached(
        "UPDATE outbox SET status = ?3, next_attempt_at = ?4, attempts = ?5, deaths = ?6, trial_deaths = ?7,
           last_attempt_at = CASE WHEN ?5 < attempts AND ?8 IS NULL THEN last_attempt_at
             ELSE coalesce((SELECT claimed_at FROM outbox_lease l WHERE l.partition = ?1), last_attempt_at) END,
           failure_type = coalesce(?8, failure_type), reason = coalesce(?9, reason) WHERE partition = ?1 AND id = ?2",
    )?;
    for change in changes {
        let status = i64::from(change.state.code());
        let due = change.state.due_in().map(|due_in| now.saturating_add(millis(due_in)));
        update.execute(params![
            partition,
            change.id,
            status,
            due,
            change.attempts,
            change.deaths,
            change.trial_deaths,
            change.failure_type.map(FailureType::as_str),
            change.reason
        ])?;
        context.counts.move_rows(partition, code::IN_FLIGHT, status, 1);
    }
    Ok(())
}

/// Gives the open batch a new token, which becomes the counter.
pub(crate) fn change_token(context: &WriteContext<'_>, batch: BatchRange, new_token: Token) -> CommandResult<()> {
    let BatchRange { partition, token, first, last } = batch;
    let new_token = new_token as i64;
    let mut rows = context.sql.prepare_cached(
        "UPDATE outbox SET lease_version = ?5 WHERE partition = ?1 AND id BETWEEN ?2 AND ?3 AND status = 1 AND lease_version = ?4",
    )?;
    rows.execute(params![partition, first, last, token, new_token])?;
    let mut lease =
        context.sql.prepare_cached("UPDATE outbox_lease SET counter = ?2, in_flight = ?2 WHERE partition = ?1")?;
    lease.execute(params![partition, new_token])?;
    Ok(())
}

/// Recomputes the blocks of these keys.
pub(crate) fn refresh_blocks(
    context: &mut WriteContext<'_>,
    partition: u32,
    keys: impl IntoIterator<Item = KeyBytes>,
) -> CommandResult<()> {
    keys.into_iter().try_for_each(|key| blocked_keys::refresh(context, partition, key))
}
