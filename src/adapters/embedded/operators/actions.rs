//! Operator actions: they change PENDING, FAILED and PARKED rows only, increment the partition's counter and write an audit row.
use std::collections::BTreeSet;

use outbox::{OperatorAction, OutboxRow, RowChange, operator};
use ports::operators::{Audit, OperatorOutcome, RedriveMode, RowFilter};
use ports::outbox::{RowId, RowStatus};
use rusqlite::{OptionalExtension, Row, params};

use super::audit;
use super::rows::{OutboxRowQuery, status_from_code};
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease;
use crate::outbox::blocked_keys;
use crate::outbox::open_batch::KeyBytes;
use crate::units::millis;

/// An unsent row with its partition and status.
struct UnsentOutboxRow {
    partition: u32,
    /// Code of the status in the file.
    status: i64,
    row: OutboxRow<KeyBytes>,
    has_failed: bool,
}

/// Makes a FAILED or PARKED row due now.
pub(crate) fn retry(context: &mut WriteContext<'_>, id: RowId, audit: &Audit) -> CommandResult<OperatorOutcome> {
    apply_to_row(context, OperatorAction::Retry, id, audit)
}

/// Parks a PENDING or FAILED row; the later rows of its key wait.
pub(crate) fn park(context: &mut WriteContext<'_>, id: RowId, audit: &Audit) -> CommandResult<OperatorOutcome> {
    apply_to_row(context, OperatorAction::Park, id, audit)
}

fn apply_to_row(
    context: &mut WriteContext<'_>,
    action: OperatorAction,
    id: RowId,
    audit: &Audit,
) -> CommandResult<OperatorOutcome> {
    let Some(unsent) = find_unsent(context, id)? else { return sent_or_missing(context, id) };
    let status = status_from_code(unsent.status)?;
    if !action.applies_to(status) {
        return Ok(OperatorOutcome::WrongStatus(status));
    }
    apply(context, action, &unsent, audit)?;
    lease::increment_counter(context, unsent.partition)?;
    Ok(OperatorOutcome::Done(1))
}

/// Makes one PARKED row due now.
pub(crate) fn redrive_row(context: &mut WriteContext<'_>, id: RowId, audit: &Audit) -> CommandResult<OperatorOutcome> {
    apply_to_row(context, OperatorAction::Redrive, id, audit)
}

/// Counts the parked rows that a filter selects, or makes the first of them due.
pub(crate) fn redrive(
    context: &mut WriteContext<'_>,
    filter: &RowFilter,
    limit: u32,
    mode: RedriveMode,
    audit: &Audit,
) -> CommandResult<OperatorOutcome> {
    let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
    let query = OutboxRowQuery::new(&filter, context.now);
    if mode == RedriveMode::DryRun {
        return Ok(OperatorOutcome::Done(query.count(context.sql)?));
    }
    let views = query.rows(context.sql, limit)?;
    let mut partitions = BTreeSet::new();
    for view in &views {
        if let Some(unsent) = find_unsent(context, view.id)? {
            apply(context, OperatorAction::Redrive, &unsent, audit)?;
            partitions.insert(unsent.partition);
        }
    }
    for partition in partitions {
        lease::increment_counter(context, partition)?;
    }
    Ok(OperatorOutcome::Done(views.len() as u64))
}

/// Applies the rule of the action to one row and writes its audit row.
fn apply(
    context: &mut WriteContext<'_>,
    action: OperatorAction,
    unsent: &UnsentOutboxRow,
    audit: &Audit,
) -> CommandResult<()> {
    let change = match action {
        OperatorAction::Retry | OperatorAction::Redrive => {
            operator::due_now(&unsent.row, status_from_code(unsent.status)?)
        }
        OperatorAction::Park => operator::parked(&unsent.row, unsent.has_failed, &audit.operator, &audit.reason),
    };
    write_change(context, unsent, &change)?;
    audit::write(context, action, change.id, audit)
}

fn write_change(
    context: &mut WriteContext<'_>,
    unsent: &UnsentOutboxRow,
    change: &RowChange<KeyBytes>,
) -> CommandResult<()> {
    let due = change.state.due_in().map(|due_in| context.now.millis().saturating_add(millis(due_in)));
    let status = i64::from(change.state.code());
    let mut update = context.sql.prepare_cached(
        "UPDATE outbox SET status = ?3, next_attempt_at = ?4, attempts = ?5, trial_deaths = ?6, reason = coalesce(?7, reason)
         WHERE partition = ?1 AND id = ?2",
    )?;
    update.execute(params![
        unsent.partition,
        change.id,
        status,
        due,
        change.attempts,
        change.trial_deaths,
        change.reason
    ])?;
    context.counts.move_rows(unsent.partition, unsent.status, status, 1);
    blocked_keys::refresh(context, unsent.partition, change.key)
}

fn find_unsent(context: &WriteContext<'_>, id: RowId) -> CommandResult<Option<UnsentOutboxRow>> {
    let read = |row: &Row<'_>| {
        let blocks_key = false; // The rules of operators' actions do not read it.
        let (attempts, deaths, trial_deaths) = (row.get(3)?, row.get(4)?, row.get(5)?);
        Ok(UnsentOutboxRow {
            partition: row.get(0)?,
            status: row.get(2)?,
            row: OutboxRow { id, key: row.get(1)?, attempts, deaths, trial_deaths, blocks_key },
            has_failed: row.get(6)?,
        })
    };
    let mut by_event = context.sql.prepare_cached(
        "SELECT q.partition, q.key, q.status, q.attempts, q.deaths, q.trial_deaths, q.failure_type IS NOT NULL
         FROM outbox_event e CROSS JOIN outbox q ON q.partition = e.partition AND q.id = e.id WHERE e.id = ?1",
    )?;
    if let Some(row) = by_event.query_row([id], read).optional()? {
        return Ok(Some(row));
    }
    // A row whose event was dropped is FAILED or PARKED.
    let mut waiting = context.sql.prepare_cached(
        "SELECT partition, key, status, attempts, deaths, trial_deaths, failure_type IS NOT NULL FROM outbox WHERE id = ?1 AND status >= 2",
    )?;
    Ok(waiting.query_row([id], read).optional()?)
}

/// The outcome for a row that is not unsent.
fn sent_or_missing(context: &WriteContext<'_>, id: RowId) -> CommandResult<OperatorOutcome> {
    let mut sent = context.sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox_archive WHERE id = ?1)")?;
    let sent: bool = sent.query_row([id], |row| row.get(0))?;
    Ok(if sent { OperatorOutcome::WrongStatus(RowStatus::Sent) } else { OperatorOutcome::Missing })
}
