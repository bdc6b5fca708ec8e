//! Settling: an open batch is SENT, and its rows move to the archive.
use std::collections::{HashMap, HashSet};

use ports::broker::Position;
use ports::outbox::{FencedOutcome, RowId, Settlement};
use rusqlite::params;

use crate::blocks;
use crate::counts::code;
use crate::engine::Work;
use crate::error::Answer;
use crate::lease::{self, OpenClaim};

/// Where rows went, as far as known.
#[derive(Default)]
pub(crate) struct Sent<'a> {
    pub(crate) positions: HashMap<RowId, &'a Position>,
    pub(crate) by_fallback: HashSet<RowId>,
}

/// Settles under the fence; the token names the batch, so the counter is not compared.
pub(crate) fn settle(work: &mut Work<'_>, settlement: &Settlement) -> Answer<FencedOutcome> {
    let fence = &settlement.fence;
    let Some(lease) = lease::read(work, fence.partition.0)? else { return Ok(FencedOutcome::Stale) };
    let Some(open) = lease.open(fence, settlement.token) else { return Ok(lease.repeated(fence, settlement.token)) };
    let sent = Sent {
        positions: settlement.positions.iter().map(|(row, position)| (*row, position)).collect(),
        by_fallback: settlement.by_fallback.iter().copied().collect(),
    };
    let rows = archive(work, fence.partition.0, open, &sent)?;
    let counter = lease::close(work, fence, &lease)?;
    Ok(FencedOutcome::Done { counter, rows })
}

/// Moves what is left of a batch into the archive and lifts the blocks of its heads.
pub(crate) fn archive(work: &mut Work<'_>, partition: u32, open: &OpenClaim, sent: &Sent<'_>) -> Answer<u64> {
    let heads = if blocks::any(work, partition)? { heads(work, partition, open)? } else { Vec::new() };
    let rows = copy(work, partition, open, sent)?;
    let mut remove = work.sql.prepare_cached(
        "DELETE FROM outbox WHERE partition = ?1 AND id BETWEEN ?2 AND ?3 AND status = 1 AND lease_version = ?4",
    )?;
    remove.execute(params![partition, open.first, open.last, open.token as i64])?;
    work.counts.moved(partition, code::IN_FLIGHT, code::SENT, rows as i64);
    for key in heads {
        blocks::refresh(work, partition, key)?;
    }
    Ok(rows)
}

fn copy(work: &Work<'_>, partition: u32, open: &OpenClaim, sent: &Sent<'_>) -> Answer<u64> {
    let mut batch = work.sql.prepare_cached(
        "SELECT id, lease_owner, attempts, deaths, failure_type, reason FROM outbox
         WHERE partition = ?1 AND id BETWEEN ?2 AND ?3 AND status = 1 AND lease_version = ?4",
    )?;
    let mut keep = work.sql.prepare_cached(
        "INSERT OR REPLACE INTO outbox_archive (id, partition, token, owner, attempts, deaths, sent_at, topic, topic_partition,
           topic_offset, by_fallback, failure_type, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    let token = open.token as i64;
    let mut rows = batch.query(params![partition, open.first, open.last, token])?;
    let mut copied = 0;
    while let Some(row) = rows.next()? {
        let id: RowId = row.get(0)?;
        let position = sent.positions.get(&id);
        let by_fallback = sent.by_fallback.contains(&id);
        keep.execute(params![
            id,
            partition,
            token,
            row.get::<_, Option<i64>>(1)?,
            row.get::<_, i64>(2)?,
            row.get::<_, i64>(3)?,
            work.now.millis(),
            // The event's own topic stands with the event.
            position.filter(|_| by_fallback).map(|position| &*position.topic),
            position.map(|position| position.partition),
            position.map(|position| position.offset as i64),
            by_fallback,
            row.get_ref(4)?.as_str_or_null().map_err(rusqlite::Error::from)?,
            row.get_ref(5)?.as_str_or_null().map_err(rusqlite::Error::from)?,
        ])?;
        copied += 1;
    }
    Ok(copied)
}

/// Keys whose head is in the batch.
fn heads(work: &Work<'_>, partition: u32, open: &OpenClaim) -> Answer<Vec<[u8; 16]>> {
    let mut statement = work.sql.prepare_cached(
        "SELECT q.key FROM outbox q CROSS JOIN outbox_blocked b ON b.partition = q.partition AND b.key = q.key AND b.head_id = q.id
         WHERE q.partition = ?1 AND q.id BETWEEN ?2 AND ?3 AND q.status = 1 AND q.lease_version = ?4",
    )?;
    let keys = statement.query_map(params![partition, open.first, open.last, open.token as i64], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}
