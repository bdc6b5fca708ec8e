//! The offsets that consumer groups have committed: reads them, and commits those of readers outside the service.
use ::outbox::{OffsetCommitMode, offset_after_commit};
use domain::Timestamp;
use ports::broker::topic_log::{NextOffset, OffsetCommitOutcome};
use rusqlite::{Connection, OptionalExtension, params};

use crate::broker::log_state::{LogTopic, OFFSET_BITS};
use crate::connection::group_commit::WriteContext;
use crate::consumer::joined_groups::{JoinedGroups, SEEN_RECENTLY};
use crate::error::CommandResult;

/// Most groups whose offsets are kept. Each uses a few rows for each topic, and anyone with the role to read may name a new one.
const GROUPS_MAX: u32 = 1_000;

/// The offsets at which a group continues, in partition order.
pub(crate) fn find(sql: &Connection, group: &str, topic: LogTopic) -> CommandResult<Vec<Option<u64>>> {
    let mut offset =
        sql.prepare_cached("SELECT next_offset FROM group_offset WHERE consumer_group = ?1 AND number = ?2")?;
    let committed = |number: u32| -> CommandResult<Option<u64>> {
        let found: Option<i64> = offset.query_row(params![group, number], |row| row.get(0)).optional()?;
        Ok(found.map(|found| found as u64))
    };
    partition_numbers(topic).map(committed).collect()
}

/// Whether a group has offsets in all partitions and was seen a short time ago.
pub(crate) fn was_seen_recently(sql: &Connection, group: &str, topic: LogTopic, now: Timestamp) -> CommandResult<bool> {
    let mut seen = sql.prepare_cached(
        "SELECT count(*) FROM group_offset WHERE consumer_group = ?1 AND number >= ?2 AND number < ?3 AND seen_at > ?4",
    )?;
    let oldest = now.millis() - SEEN_RECENTLY.as_millis() as i64;
    let found: u32 =
        seen.query_row(params![group, topic.first, topic.first + topic.partitions, oldest], |row| row.get(0))?;
    Ok(found == topic.partitions)
}

/// Registers a group and commits offsets. `oldest` is the start of the retention time.
pub(crate) fn commit(
    context: &WriteContext<'_>,
    group: &str,
    topic: LogTopic,
    offsets: &[NextOffset],
    mode: OffsetCommitMode,
    oldest: i64,
    joined: &JoinedGroups,
) -> CommandResult<OffsetCommitOutcome> {
    let former = find(context.sql, group, topic)?;
    let mut end = context.sql.prepare_cached("SELECT next_offset FROM topic_partition WHERE number = ?1")?;
    let mut changes = Vec::with_capacity(offsets.len());
    for (partition, requested) in offsets.iter().copied() {
        let end: Option<i64> = end.query_row([topic.first + partition], |row| row.get(0)).optional()?;
        let end = end.filter(|_| partition < topic.partitions).unwrap_or(0) as u64;
        let before = former.get(partition as usize).copied().flatten();
        match offset_after_commit(before, requested, end, mode) {
            Some(after) => changes.push((topic.first + partition, after)),
            None => return Ok(OffsetCommitOutcome::BeyondEnd { partition, end }),
        }
    }
    if !admit(context, group, oldest, joined)? {
        return Ok(OffsetCommitOutcome::TooManyGroups(GROUPS_MAX));
    }
    register(context, group, topic)?;
    let mut put = context
        .sql
        .prepare_cached("UPDATE group_offset SET next_offset = ?3 WHERE consumer_group = ?1 AND number = ?2")?;
    for (number, after) in changes {
        put.execute(params![group, number, after as i64])?;
    }
    Ok(OffsetCommitOutcome::Committed)
}

/// Whether the group is known or may be added. At the limit, groups that were not seen since `oldest` are deleted: retention does not wait for them,
/// so their unread records may be deleted already.
fn admit(context: &WriteContext<'_>, group: &str, oldest: i64, joined: &JoinedGroups) -> CommandResult<bool> {
    let mut known =
        context.sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM group_offset WHERE consumer_group = ?1)")?;
    if known.query_row([group], |row| row.get(0))? {
        return Ok(true);
    }
    let mut groups = context.sql.prepare_cached("SELECT count(DISTINCT consumer_group) FROM group_offset")?;
    let mut count = || groups.query_row([], |row| row.get::<_, u32>(0));
    if count()? < GROUPS_MAX {
        return Ok(true);
    }
    joined.refresh_seen_at(context, oldest)?;
    let mut delete = context.sql.prepare_cached(
        "DELETE FROM group_offset WHERE consumer_group IN
           (SELECT consumer_group FROM group_offset GROUP BY consumer_group HAVING max(seen_at) < ?1)",
    )?;
    delete.execute([oldest])?;
    Ok(count()? < GROUPS_MAX)
}

/// Sets the group's `seen_at` in every partition. A new group begins at the first record that the log still has.
fn register(context: &WriteContext<'_>, group: &str, topic: LogTopic) -> CommandResult<()> {
    let mut seen = context.sql.prepare_cached(
        "INSERT INTO group_offset (consumer_group, number, next_offset, seen_at)
         SELECT ?1, t.number,
           coalesce((SELECT l.place FROM log l WHERE l.place >= t.number << ?4 AND l.place < (t.number + 1) << ?4
                     ORDER BY l.place LIMIT 1) & ((1 << ?4) - 1), t.next_offset), ?5
         FROM topic_partition t WHERE t.number >= ?2 AND t.number < ?3
         ON CONFLICT DO UPDATE SET seen_at = max(seen_at, excluded.seen_at)",
    )?;
    let end = topic.first + topic.partitions;
    seen.execute(params![group, topic.first, end, OFFSET_BITS, context.now.millis()])?;
    Ok(())
}

fn partition_numbers(topic: LogTopic) -> impl Iterator<Item = u32> {
    topic.first..topic.first + topic.partitions
}
