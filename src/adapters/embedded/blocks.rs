//! Keys whose line waits. One rule keeps the small table true: a key's head is its first row that is FAILED or PARKED with its key.
//! Rows of the key before the head may go, rows behind it wait; so the order of a key survives whatever happens to a row in its middle.
use domain::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::counts::code;
use crate::engine::Work;
use crate::error::Answer;

/// Deaths that make a row a suspect.
pub(crate) const SUSPECT_DEATHS: u32 = 3;

/// Sets a key's head anew, or lifts its block. Call it after a row of the key began or ceased to wait.
pub(crate) fn refresh(work: &mut Work<'_>, partition: u32, key: [u8; 16]) -> Answer<()> {
    // Rows behind the former head may be ready now, wherever the scan had got to.
    work.lows.remove(&partition);
    let sql = work.sql;
    // Named, because without statistics the planner would walk the whole partition instead.
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
    block.execute(params![partition, key, id, due, deaths >= SUSPECT_DEATHS])?;
    Ok(())
}

/// Whether any key of a partition waits: mostly none does, and then nobody needs to look row by row.
pub(crate) fn any(work: &Work<'_>, partition: u32) -> Answer<bool> {
    let mut statement = work.sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox_blocked WHERE partition = ?1)")?;
    Ok(statement.query_row([partition], |row| row.get(0))?)
}

/// When the next head is due that is not due yet.
pub(crate) fn next_due(work: &Work<'_>, partition: u32) -> Answer<Option<std::time::Duration>> {
    let mut statement = work.sql.prepare_cached(
        "SELECT min(next_attempt_at) FROM outbox_blocked WHERE partition = ?1 AND next_attempt_at > ?2",
    )?;
    let due: Option<i64> = statement.query_row(params![partition, work.now.millis()], |row| row.get(0))?;
    Ok(due.map(|due| Timestamp::from_millis(due).since(work.now)))
}

/// Whether a suspect is due.
pub(crate) fn suspect_due(work: &Work<'_>, partition: u32) -> Answer<bool> {
    let mut statement = work.sql.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM outbox_blocked WHERE partition = ?1 AND next_attempt_at <= ?2 AND suspect = 1)",
    )?;
    Ok(statement.query_row(params![partition, work.now.millis()], |row| row.get(0))?)
}
