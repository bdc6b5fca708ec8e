//! Excluding: rows that do not go leave an open batch before it is published, and their keys' later rows with them.
use std::collections::HashMap;

use ports::outbox::{Disposition, Exclusion, FencedOutcome, RowId};
use ports::partitions::{Fence, Token};
use rusqlite::params;

use crate::blocks;
use crate::counts::code;
use crate::engine::Work;
use crate::error::Answer;
use crate::lease::{self, OpenClaim};
use crate::leases::millis;

/// Most characters of a reason.
pub(crate) const REASON_MAX: usize = 256;

type Key = [u8; 16];

/// Excludes under the fence. The batch stays open for the rest.
pub(crate) fn exclude(work: &mut Work<'_>, fence: &Fence, token: Token, rows: &[Exclusion]) -> Answer<FencedOutcome> {
    let partition = fence.partition.0;
    let Some(lease) = lease::read(work, partition)? else { return Ok(FencedOutcome::Stale) };
    let Some(open) = lease.open(fence, token).filter(|_| lease.counter == fence.counter) else {
        return Ok(FencedOutcome::Stale);
    };
    let batch = batch(work, partition, open)?;
    let named: HashMap<RowId, &Exclusion> = rows.iter().map(|exclusion| (exclusion.row, exclusion)).collect();
    let firsts = firsts(&batch, &named);
    let mut changed = 0;
    for (id, key) in &batch {
        match named.get(id) {
            Some(exclusion) => meet_fate(work, partition, exclusion)?,
            None if firsts.get(key).is_some_and(|first| first < id) => give_back(work, partition, *id)?,
            None => continue,
        }
        changed += 1;
    }
    if changed == 0 && !rows.is_empty() {
        return Ok(FencedOutcome::Stale);
    }
    for key in firsts.into_keys() {
        blocks::refresh(work, partition, key)?;
    }
    Ok(FencedOutcome::Done { counter: lease::raise(work, partition)?, rows: changed })
}

/// Per key the first row that is excluded.
fn firsts(batch: &[(RowId, Key)], named: &HashMap<RowId, &Exclusion>) -> HashMap<Key, RowId> {
    let mut firsts = HashMap::new();
    for (id, key) in batch.iter().filter(|(id, _)| named.contains_key(id)) {
        firsts.entry(*key).or_insert(*id);
    }
    firsts
}

fn batch(work: &Work<'_>, partition: u32, open: &OpenClaim) -> Answer<Vec<(RowId, Key)>> {
    let mut statement = work.sql.prepare_cached(
        "SELECT id, key FROM outbox WHERE partition = ?1 AND id BETWEEN ?2 AND ?3 AND status = 1 AND lease_version = ?4 ORDER BY id",
    )?;
    let values = params![partition, open.first, open.last, open.token as i64];
    let rows = statement.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn meet_fate(work: &mut Work<'_>, partition: u32, exclusion: &Exclusion) -> Answer<()> {
    let (status, next_attempt_at) = match exclusion.disposition {
        Disposition::Retry(delay) => (code::FAILED, Some(work.now.millis().saturating_add(millis(delay)))),
        Disposition::ParkKey => (code::PARKED, None),
        Disposition::ParkRow => (code::PARKED_ALONE, None),
    };
    let reason: String = exclusion.reason.chars().take(REASON_MAX).collect();
    let mut put = work.sql.prepare_cached(
        "UPDATE outbox SET status = ?3, next_attempt_at = ?4, failure_type = ?5, reason = ?6 WHERE partition = ?1 AND id = ?2",
    )?;
    put.execute(params![partition, exclusion.row, status, next_attempt_at, exclusion.failure_type.as_str(), reason])?;
    work.counts.moved(partition, code::IN_FLIGHT, status, 1);
    Ok(())
}

/// A later row of an excluded row's key waits for its turn again; it was never tried.
fn give_back(work: &mut Work<'_>, partition: u32, id: RowId) -> Answer<()> {
    let mut put = work.sql.prepare_cached(
        "UPDATE outbox SET status = 0, next_attempt_at = NULL, attempts = max(attempts - 1, 0) WHERE partition = ?1 AND id = ?2",
    )?;
    put.execute(params![partition, id])?;
    work.counts.moved(partition, code::IN_FLIGHT, code::PENDING, 1);
    Ok(())
}
