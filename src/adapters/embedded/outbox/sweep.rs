//! Sweeps in bounded steps: archived rows past their retention, unreferenced events, and records that every group has acknowledged.
use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::broker::log_state::log_id;
use crate::connection::group_commit::WriteContext;
use crate::consumer::joined_groups::JoinedGroups;
use crate::error::CommandResult;
use crate::outbox::counts::code;

/// A page of the archive after its sweep.
pub(crate) struct SweptPage {
    /// The number of rows deleted, or the limit if the next page should follow at once.
    pub(crate) rows: u64,
    /// The id after which the next page begins.
    pub(crate) next_after: i64,
}

/// Deletes the archived rows of one page that were sent before `oldest`, and events that no row references. The page begins after the id `after`;
/// the limit bounds the rows read. Rows that were sent late, and stay, neither fill every page nor end the sweep.
pub(crate) fn outbox(
    context: &mut WriteContext<'_>,
    after: i64,
    oldest: i64,
    limit: u32,
    partitions: u32,
) -> CommandResult<SweptPage> {
    let sql = context.sql;
    let mut page = sql.prepare_cached(
        "SELECT p.rows, p.last, (SELECT created_at FROM outbox_event WHERE id = p.last)
         FROM (SELECT count(*) AS rows, max(id) AS last FROM (SELECT id FROM outbox_archive WHERE id > ?1 ORDER BY id LIMIT ?2)) p",
    )?;
    let (read, last, created_at): (u32, Option<i64>, Option<i64>) =
        page.query_row(params![after, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let last = last.unwrap_or(after);
    // An event from a time when the clock was ahead says nothing about the rows that follow it.
    let created_at = created_at.filter(|created_at| *created_at <= context.now.millis());
    let next_after = next_after(last, created_at, oldest, read >= limit);
    let mut delete = sql.prepare_cached(
        "DELETE FROM outbox_archive WHERE sent_at < ?1 AND id > ?2 AND id <= ?3 RETURNING id, partition",
    )?;
    let rows: Vec<(i64, u32)> = delete
        .query_map(params![oldest, after, last], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    // The newest event is kept, so that SQLite never generates its id again.
    let mut delete_event =
        sql.prepare_cached("DELETE FROM outbox_event WHERE id = ?1 AND id < (SELECT max(id) FROM outbox_event)")?;
    for (id, partition) in &rows {
        delete_event.execute([id])?;
        context.counts.add_rows(*partition, code::SENT, -1);
    }
    unreferenced_events(sql, limit, partitions)?;
    let continues = next_after > 0 && !rows.is_empty();
    Ok(SweptPage { rows: if continues { u64::from(limit) } else { rows.len() as u64 }, next_after })
}

/// The id after which the next page begins. A pass ends where the archive does, or at events that are younger than the retention, and so were
/// sent later still: ids grow with time.
fn next_after(last: i64, created_at: Option<i64>, oldest: i64, is_full: bool) -> i64 {
    let is_old = created_at.is_none_or(|created_at| created_at < oldest);
    if is_full && is_old { last } else { 0 }
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
    joined.refresh_seen_at(context, oldest)?;
    let acknowledged = acknowledged(context.sql, oldest)?;
    let mut partitions =
        context.sql.prepare_cached("SELECT number, next_offset FROM topic_partition WHERE next_offset > 0")?;
    let ends: Vec<(u32, i64)> =
        partitions.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut delete = context.sql.prepare_cached("DELETE FROM log WHERE place >= ?1 AND place <= ?2")?;
    let mut left = limit;
    for (number, end) in ends {
        let end = acknowledged.get(&number).copied().unwrap_or(end) as u64;
        let (start, end) = (log_id(number, 0), log_id(number, end));
        let Some(last) = last_expired(context.sql, start, end, oldest, left)? else { continue };
        left = left.saturating_sub(delete.execute(params![start, last])? as u32);
        if left == 0 {
            break;
        }
    }
    Ok(u64::from(limit - left))
}

/// The offset up to which all groups seen since `oldest` have acknowledged, by the number of the topic partition. One pass over the offsets:
/// their key begins with the group, so a search for one partition would read all of them as well.
fn acknowledged(sql: &Connection, oldest: i64) -> CommandResult<HashMap<u32, i64>> {
    let mut offsets = sql.prepare_cached("SELECT number, next_offset FROM group_offset WHERE seen_at >= ?1")?;
    let mut rows = offsets.query([oldest])?;
    let mut lowest: HashMap<u32, i64> = HashMap::new();
    while let Some(row) = rows.next()? {
        let next: i64 = row.get(1)?;
        lowest.entry(row.get(0)?).and_modify(|offset| *offset = next.min(*offset)).or_insert(next);
    }
    Ok(lowest)
}

/// The last of the first records, at most `limit`, that were all appended before `oldest`. The read ends at the first younger one: a partition
/// without old records costs one row.
fn last_expired(sql: &Connection, start: i64, end: i64, oldest: i64, limit: u32) -> CommandResult<Option<i64>> {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use memory::SystemClock;

    use super::*;
    use crate::connection::group_commit::{ClosureCommand, SavepointMode, WriterCommand, WritingConnection};
    use crate::connection::step_count::counted_store;

    #[test]
    fn sweep_of_the_log_reads_each_offset_once() {
        let folder = tempfile::tempdir().unwrap();
        let (sql, steps) = counted_store(folder.path());
        // 1,200 partitions with one old record each, and 50 groups that have read it.
        let numbers = "WITH RECURSIVE n(number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM n WHERE number < 1199)";
        sql.execute_batch(&format!(
            "INSERT INTO topic_partition (number, next_offset) {numbers} SELECT number, 1 FROM n;
             INSERT INTO log {numbers} SELECT number << 40, 1, 1, 'k', x'', x'' FROM n;
             INSERT INTO group_offset {numbers} SELECT 'g' || g.number, n.number, 1, 2 FROM n JOIN n g ON g.number < 50;"
        ))
        .unwrap();
        let mut writing = WritingConnection::new(sql, Arc::new(SystemClock::new()), Arc::default(), 0);
        let joined = JoinedGroups::default();
        let command = move |context: &mut WriteContext<'_>| log(context, &joined, 2, 10_000);
        let (command, mut deleted) = ClosureCommand::new("log_sweep", SavepointMode::OwnSavepoint, command);

        let ((), steps) = steps.measure(|| writing.run(VecDeque::from([Box::new(command) as Box<dyn WriterCommand>])));

        assert_eq!(deleted.try_recv().unwrap().unwrap(), 1_200);
        assert!(steps < 2_000_000, "{steps} steps for 60,000 offsets");
    }
}
