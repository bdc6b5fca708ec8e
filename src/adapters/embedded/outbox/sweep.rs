//! Sweeps in bounded steps: archived rows past their retention, unreferenced events, and records that every group has acknowledged.
use rusqlite::{Connection, OptionalExtension, params};

use crate::broker::end_offsets::record_key;
use crate::connection::group_commit::WriteContext;
use crate::consumer::joined_groups::JoinedGroups;
use crate::error::CommandResult;
use crate::outbox::counts::code;

/// Deletes archived rows sent before `oldest`, and the events that no row references.
///
/// The limit also bounds the rows read, which are in id order: a row that was sent late may delay the deletion of later ids, at most until
/// it is old enough itself.
pub(crate) fn outbox(context: &mut WriteContext<'_>, oldest: i64, limit: u32, partitions: u32) -> CommandResult<u64> {
    let sql = context.sql;
    let mut delete = sql.prepare_cached(
        "DELETE FROM outbox_archive WHERE sent_at < ?1 AND id IN (SELECT id FROM outbox_archive ORDER BY id LIMIT ?2)
         RETURNING id, partition",
    )?;
    let rows: Vec<(i64, u32)> =
        delete.query_map(params![oldest, limit], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    // The newest event is kept, so that SQLite never generates its id again.
    let mut delete_event =
        sql.prepare_cached("DELETE FROM outbox_event WHERE id = ?1 AND id < (SELECT max(id) FROM outbox_event)")?;
    for (id, partition) in &rows {
        delete_event.execute([id])?;
        context.counts.rows(*partition, code::SENT, -1);
    }
    unreferenced_events(sql, limit, partitions)?;
    Ok(rows.len() as u64)
}

/// Deletes events below every outbox and archive row: each was the newest event at an earlier sweep.
fn unreferenced_events(sql: &Connection, limit: u32, partitions: u32) -> CommandResult<()> {
    let mut floor: Option<i64> = sql.query_row("SELECT min(id) FROM outbox_archive", [], |row| row.get(0))?;
    let mut first = sql.prepare_cached("SELECT id FROM outbox WHERE partition = ?1 ORDER BY id LIMIT 1")?;
    for partition in 0..partitions {
        let id: Option<i64> = first.query_row([partition], |row| row.get(0)).optional()?;
        floor = floor.into_iter().chain(id).min();
    }
    let mut delete_events = sql.prepare_cached(
        "DELETE FROM outbox_event WHERE id IN (SELECT id FROM outbox_event
           WHERE id < coalesce(?1, (SELECT max(id) FROM outbox_event)) ORDER BY id LIMIT ?2)",
    )?;
    delete_events.execute(params![floor, limit])?;
    Ok(())
}

/// Deletes at most `limit` records appended before `oldest`, from the start of each partition. It keeps the records that a group has not
/// acknowledged that is joined or was seen since `oldest`.
pub(crate) fn log(context: &WriteContext<'_>, joined: &JoinedGroups, oldest: i64, limit: u32) -> CommandResult<u64> {
    joined.mark_seen(context, oldest)?;
    let mut numbers = context.sql.prepare_cached(
        "SELECT t.number, coalesce((SELECT min(g.next_offset) FROM group_offset g WHERE g.number = t.number AND g.seen_at >= ?1),
           t.next_offset) FROM topic_partition t WHERE t.next_offset > 0",
    )?;
    let ends: Vec<(u32, u64)> = numbers
        .query_map([oldest], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?
        .collect::<Result<_, _>>()?;
    let mut delete = context.sql.prepare_cached("DELETE FROM log WHERE place >= ?1 AND place <= ?2")?;
    let mut left = limit;
    for (number, acknowledged) in ends {
        let (start, end) = (record_key(number, 0), record_key(number, acknowledged));
        let Some(last) = last_old(context.sql, start, end, oldest, left)? else { continue };
        left = left.saturating_sub(delete.execute(params![start, last])? as u32);
        if left == 0 {
            break;
        }
    }
    Ok(u64::from(limit - left))
}

/// The last of the first records, at most `limit`, that were all appended before `oldest`. The read ends at the first younger one: a partition
/// without old records costs one row.
fn last_old(sql: &Connection, start: i64, end: i64, oldest: i64, limit: u32) -> CommandResult<Option<i64>> {
    let mut records = sql.prepare_cached(
        "SELECT place, appended_at FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3",
    )?;
    let mut rows = records.query(params![start, end, limit])?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(1)? >= oldest {
            break;
        }
        last = Some(row.get(0)?);
    }
    Ok(last)
}
