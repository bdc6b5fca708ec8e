//! Settle: marks an open batch SENT and moves its rows to the archive.
use std::collections::{HashMap, HashSet};

use ports::broker::Position;
use ports::outbox::{FencedOutcome, RowId, Settlement};
use rusqlite::params;

use super::blocked_keys;
use super::counts::code;
use super::open_batch::{self, BatchRange, KeyBytes};
use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease;

/// The positions of sent rows in the broker, as far as they are known.
#[derive(Default)]
pub(crate) struct SentPositions<'a> {
    pub(crate) positions: HashMap<RowId, &'a Position>,
    pub(crate) by_fallback: HashSet<RowId>,
}

/// Settles under the fence; the token names the batch, so the counter is not compared.
pub(crate) fn settle(context: &mut WriteContext<'_>, settlement: &Settlement) -> CommandResult<FencedOutcome> {
    let (fence, token) = (&settlement.fence, settlement.token);
    let Some(row) = lease::read(context, fence.partition)? else { return Ok(FencedOutcome::Stale) };
    let Some(open) = row.lease.open_batch(fence, token) else { return Ok(row.lease.repeated_close(fence, token)) };
    let sent = SentPositions {
        positions: settlement.positions.iter().map(|(row, position)| (*row, position)).collect(),
        by_fallback: settlement.by_fallback.iter().copied().collect(),
    };
    let rows = archive(context, BatchRange::new(fence.partition.0, &row, open), &sent)?;
    let counter = lease::close(context, fence.partition, &row.lease)?;
    Ok(FencedOutcome::Done { counter, rows })
}

/// Moves the rows that are left of a batch to the archive and lifts the blocks of its heads.
pub(crate) fn archive(
    context: &mut WriteContext<'_>,
    batch: BatchRange,
    sent: &SentPositions<'_>,
) -> CommandResult<u64> {
    let partition = batch.partition;
    let heads = if blocked_keys::any(context, partition)? { heads(context, batch)? } else { Vec::new() };
    let rows = copy_to_archive(context, batch, sent)?;
    let mut remove = context.sql.prepare_cached(
        "DELETE FROM outbox WHERE partition = ?1 AND id BETWEEN ?2 AND ?3 AND status = 1 AND lease_version = ?4",
    )?;
    remove.execute(params![partition, batch.first, batch.last, batch.token])?;
    context.counts.move_rows(partition, code::IN_FLIGHT, code::SENT, rows as i64);
    open_batch::refresh_blocks(context, partition, heads)?;
    Ok(rows)
}

fn copy_to_archive(context: &WriteContext<'_>, batch: BatchRange, sent: &SentPositions<'_>) -> CommandResult<u64> {
    let mut select = context.sql.prepare_cached(
        "SELECT id, lease_owner, attempts, deaths, failure_type, reason FROM outbox
         WHERE partition = ?1 AND id BETWEEN ?2 AND ?3 AND status = 1 AND lease_version = ?4",
    )?;
    let mut insert = context.sql.prepare_cached(
        "INSERT OR REPLACE INTO outbox_archive (id, partition, token, owner, attempts, deaths, sent_at, topic, topic_partition,
           topic_offset, by_fallback, failure_type, reason, last_attempt_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    let mut claim = context.sql.prepare_cached("SELECT claimed_at FROM outbox_lease WHERE partition = ?1")?;
    let claimed_at: Option<i64> = claim.query_row([batch.partition], |row| row.get(0))?;
    let mut rows = select.query(params![batch.partition, batch.first, batch.last, batch.token])?;
    let mut copied = 0;
    while let Some(row) = rows.next()? {
        let id: RowId = row.get(0)?;
        let position = sent.positions.get(&id);
        let by_fallback = sent.by_fallback.contains(&id);
        insert.execute(params![
            id,
            batch.partition,
            batch.token,
            row.get::<_, Option<i64>>(1)?,
            row.get::<_, i64>(2)?,
            row.get::<_, i64>(3)?,
            context.now.millis(),
            // The archive keeps a topic only where it differs from the event's own.
            position.filter(|_| by_fallback).map(|position| &*position.topic),
            position.map(|position| position.partition),
            position.map(|position| position.offset as i64),
            by_fallback,
            row.get_ref(4)?.as_str_or_null().map_err(rusqlite::Error::from)?,
            row.get_ref(5)?.as_str_or_null().map_err(rusqlite::Error::from)?,
            claimed_at,
        ])?;
        copied += 1;
    }
    Ok(copied)
}

/// Keys whose head is in the batch.
fn heads(context: &WriteContext<'_>, batch: BatchRange) -> CommandResult<Vec<KeyBytes>> {
    let mut statement = context.sql.prepare_cached(
        "SELECT q.key FROM outbox q CROSS JOIN outbox_blocked b ON b.partition = q.partition AND b.key = q.key AND b.head_id = q.id
         WHERE q.partition = ?1 AND q.id BETWEEN ?2 AND ?3 AND q.status = 1 AND q.lease_version = ?4",
    )?;
    let keys = statement.query_map(params![batch.partition, batch.first, batch.last, batch.token], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}
