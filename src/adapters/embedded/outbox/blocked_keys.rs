//! Blocked keys. One rule keeps this small table correct: the head of a key is its first row that is FAILED or PARKED with its key. Rows of
//! the key before the head may be claimed, rows behind it wait, so a key keeps its order while a row in its middle waits.
use domain::Timestamp;
use outbox::claim;
use rusqlite::{OptionalExtension, params};

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::outbox::counts::code;

/// Recomputes the head of a key, or lifts its block. The caller calls it after a row of the key began or ceased to wait.
pub(crate) fn refresh(context: &mut WriteContext<'_>, partition: u32, key: [u8; 16]) -> CommandResult<()> {
    // Rows behind the former head may be ready now, also below the remembered start of the scan.
    context.scan_starts.remove(&partition);
    let sql = context.sql;
    // The index is named, because without statistics the planner walks the whole partition instead.
    let mut first = sql.prepare_cached(
        "SELECT id, status, next_attempt_at, deaths FROM outbox INDEXED BY outbox_waiting
         WHERE partition = ?1 AND key = ?2 AND status >= 2 AND status <= 3 ORDER BY id LIMIT 1",
    )?;
    let head: Option<(i64, i64, Option<i64>, u32)> = first
        .query_row(params![partition, key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    let Some((id, status, next_attempt_at, deaths)) = head else {
        sql.prepare_cached("DELETE FROM outbox_blocked WHERE partition = ?1 AND key = ?2")?
            .execute(params![partition, key])?;
        return Ok(());
    };
    let due = next_attempt_at.filter(|_| status == code::FAILED);
    let mut block = sql.prepare_cached(
        "INSERT INTO outbox_blocked (partition, key, head_id, next_attempt_at, suspect) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO UPDATE SET head_id = excluded.head_id, next_attempt_at = excluded.next_attempt_at, suspect = excluded.suspect",
    )?;
    block.execute(params![partition, key, id, due, claim::is_suspect(deaths)])?;
    Ok(())
}

/// Whether any key of a partition is blocked. Mostly none is, and then a claim needs no check for each row.
pub(crate) fn any(context: &WriteContext<'_>, partition: u32) -> CommandResult<bool> {
    let mut statement =
        context.sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox_blocked WHERE partition = ?1)")?;
    Ok(statement.query_row([partition], |row| row.get(0))?)
}

/// Time until the next head is due that is not due yet.
pub(crate) fn next_due(context: &WriteContext<'_>, partition: u32) -> CommandResult<Option<std::time::Duration>> {
    let mut statement = context.sql.prepare_cached(
        "SELECT min(next_attempt_at) FROM outbox_blocked WHERE partition = ?1 AND next_attempt_at > ?2",
    )?;
    let due: Option<i64> = statement.query_row(params![partition, context.now.millis()], |row| row.get(0))?;
    Ok(due.map(|due| Timestamp::from_millis(due).since(context.now)))
}

/// Whether a suspect is due.
pub(crate) fn suspect_due(context: &WriteContext<'_>, partition: u32) -> CommandResult<bool> {
    let mut statement = context.sql.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM outbox_blocked WHERE partition = ?1 AND next_attempt_at <= ?2 AND suspect = 1)",
    )?;
    Ok(statement.query_row(params![partition, context.now.millis()], |row| row.get(0))?)
}
