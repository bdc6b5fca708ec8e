//! Operators' statements: they touch PENDING, FAILED and PARKED rows only, raise the partition's counter, and leave an audit row.
use domain::Timestamp;
use ports::operators::{Audit, OperatorOutcome, RowFilter};
use ports::outbox::{RowId, RowStatus};
use rusqlite::{OptionalExtension, params};

use crate::blocks;
use crate::counts::code;
use crate::engine::Work;
use crate::error::Answer;
use crate::exclude::REASON_MAX;
use crate::lease;
use crate::row_view::{Question, status_of};

/// A row that has not left.
struct Living {
    partition: u32,
    key: [u8; 16],
    status: i64,
}

/// Makes a FAILED or PARKED row due now.
pub(crate) fn retry(work: &mut Work<'_>, id: RowId, audit: &Audit) -> Answer<OperatorOutcome> {
    let Some(row) = living(work, id)? else { return gone(work, id) };
    if row.status < code::FAILED {
        return Ok(OperatorOutcome::WrongStatus(status_of(row.status)));
    }
    due_now(work, id, &row)?;
    lease::raise(work, row.partition)?;
    write_down(work, "retry", Some(id), audit)?;
    Ok(OperatorOutcome::Done(1))
}

/// Parks a PENDING or FAILED row; its key waits with it.
pub(crate) fn park(work: &mut Work<'_>, id: RowId, audit: &Audit) -> Answer<OperatorOutcome> {
    let Some(row) = living(work, id)? else { return gone(work, id) };
    if row.status != code::PENDING && row.status != code::FAILED {
        return Ok(OperatorOutcome::WrongStatus(status_of(row.status)));
    }
    // What made it fail says more than who parked it; that stands in the audit.
    let reason: String = audit.parked().chars().take(REASON_MAX).collect();
    let mut put = work.sql.prepare_cached(
        "UPDATE outbox SET status = 3, next_attempt_at = NULL, reason = coalesce(reason, ?3) WHERE partition = ?1 AND id = ?2",
    )?;
    put.execute(params![row.partition, id, reason])?;
    work.counts.moved(row.partition, row.status, code::PARKED, 1);
    blocks::refresh(work, row.partition, row.key)?;
    lease::raise(work, row.partition)?;
    write_down(work, "park", Some(id), audit)?;
    Ok(OperatorOutcome::Done(1))
}

/// Counts the parked rows that a filter lets through, and with `commit` makes the first of them due.
pub(crate) fn redrive(
    work: &mut Work<'_>,
    filter: &RowFilter,
    limit: u32,
    commit: bool,
    audit: &Audit,
) -> Answer<OperatorOutcome> {
    let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
    let question = |now: Timestamp| Question::of(&filter, now);
    if !commit {
        return Ok(OperatorOutcome::Done(question(work.now).count(work.sql)?));
    }
    let rows = question(work.now).rows(work.sql, limit)?;
    let mut partitions = std::collections::BTreeSet::new();
    for view in &rows {
        if let Some(row) = living(work, view.id)? {
            due_now(work, view.id, &row)?;
            partitions.insert(row.partition);
            write_down(work, "redrive", Some(view.id), audit)?;
        }
    }
    for partition in partitions {
        lease::raise(work, partition)?;
    }
    Ok(OperatorOutcome::Done(rows.len() as u64))
}

/// A parked row begins anew, but one that was convicted of deaths stays a suspect: it is tried alone before it may kill neighbours.
fn due_now(work: &mut Work<'_>, id: RowId, row: &Living) -> Answer<()> {
    let mut put = work.sql.prepare_cached(
        "UPDATE outbox SET attempts = CASE WHEN status > 2 THEN 0 ELSE attempts END, trial_deaths = CASE WHEN status > 2 THEN 0 ELSE trial_deaths END,
           status = 2, next_attempt_at = ?3 WHERE partition = ?1 AND id = ?2",
    )?;
    put.execute(params![row.partition, id, work.now.millis()])?;
    work.counts.moved(row.partition, row.status, code::FAILED, 1);
    blocks::refresh(work, row.partition, row.key)
}

fn living(work: &Work<'_>, id: RowId) -> Answer<Option<Living>> {
    let read = |row: &rusqlite::Row<'_>| Ok(Living { partition: row.get(0)?, key: row.get(1)?, status: row.get(2)? });
    let mut by_event = work.sql.prepare_cached(
        "SELECT q.partition, q.key, q.status FROM outbox_event e CROSS JOIN outbox q ON q.partition = e.partition AND q.id = e.id
         WHERE e.id = ?1",
    )?;
    if let Some(row) = by_event.query_row([id], read).optional()? {
        return Ok(Some(row));
    }
    // A row whose event is gone waits or is parked.
    let mut waiting =
        work.sql.prepare_cached("SELECT partition, key, status FROM outbox WHERE id = ?1 AND status >= 2")?;
    Ok(waiting.query_row([id], read).optional()?)
}

fn gone(work: &Work<'_>, id: RowId) -> Answer<OperatorOutcome> {
    let mut sent = work.sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox_archive WHERE id = ?1)")?;
    let sent: bool = sent.query_row([id], |row| row.get(0))?;
    Ok(if sent { OperatorOutcome::WrongStatus(RowStatus::Sent) } else { OperatorOutcome::Missing })
}

fn write_down(work: &Work<'_>, action: &str, id: Option<RowId>, audit: &Audit) -> Answer<()> {
    let mut put = work
        .sql
        .prepare_cached("INSERT INTO audit (acted_at, action, row_id, who, why) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    put.execute(params![work.now.millis(), action, id, audit.operator, audit.reason])?;
    Ok(())
}
