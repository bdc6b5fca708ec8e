//! Claim: selects the rows that are due and names them in the lease row as one batch.
use std::sync::Arc;

use domain::{EventId, Hlc, RegionId, Timestamp};
use ports::event_headers::EventHeaders;
use ports::orders::{RegionStamp, TraceContext};
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, ClaimedBatch, ClaimedRow, EventKey, RowId};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::leases::lease;
use crate::outbox::blocked_keys;
use crate::outbox::claim_plan::{self, Candidate, CandidateKind, CandidateScan, ClaimPlan, NextScan, payload_bytes};
use crate::outbox::counts::code;

/// Most due suspects that a trial examines to find one that it may claim.
const SUSPECTS_EXAMINED: u32 = 16;

macro_rules! columns {
    () => {
        "q.id, q.key, q.deaths, q.attempts, e.event_id, e.type, e.topic, e.sequence, e.occurred_at, e.region, e.hlc_millis,
         e.hlc_counter, e.traceparent, e.tracestate, e.created_at, e.payload, e.key_text, e.headers, e.content_type, e.request_id,
         e.contract_checksum"
    };
}

/// Selects ready rows while no key is blocked.
const READY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM outbox q LEFT JOIN outbox_event e ON e.id = q.id
     WHERE q.partition = ?1 AND q.id > ?2 AND q.status = 0 ORDER BY q.id"
);
/// Selects ready rows while some keys are blocked: a row at or behind the head of its key is left out.
const READY_AROUND_BLOCKS: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM outbox q LEFT JOIN outbox_event e ON e.id = q.id
     WHERE q.partition = ?1 AND q.id > ?2 AND q.status = 0 AND NOT EXISTS (SELECT 1 FROM outbox_blocked b
       WHERE b.partition = q.partition AND b.key = q.key AND b.head_id <= q.id) ORDER BY q.id"
);
const DUE_HEADS: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM outbox_blocked b CROSS JOIN outbox q ON q.partition = b.partition AND q.id = b.head_id
     LEFT JOIN outbox_event e ON e.id = q.id
     WHERE b.partition = ?1 AND b.next_attempt_at <= ?2 AND b.suspect = 0 AND q.status = 2 ORDER BY b.head_id"
);
/// Selects one FAILED row by its id.
const WAITING_ROW: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM outbox q LEFT JOIN outbox_event e ON e.id = q.id
     WHERE q.partition = ?1 AND q.id = ?2 AND q.status = 2"
);

/// Selects one event by its row's id, whatever the row's status. A candidate's attempt is one more than its row counts.
const EVENT: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM (SELECT e.id, e.key, 0 AS deaths, max(coalesce(u.attempts, a.attempts, 1), 1) - 1 AS attempts
       FROM outbox_event e LEFT JOIN outbox u ON u.partition = e.partition AND u.id = e.id
       LEFT JOIN outbox_archive a ON a.id = e.id WHERE e.id = ?1) q
     CROSS JOIN outbox_event e ON e.id = q.id"
);

/// Claims due rows under the fence.
pub(crate) fn claim(context: &mut WriteContext<'_>, claim: &Claim) -> CommandResult<ClaimOutcome> {
    let fence = &claim.fence;
    if !lease::read(context, fence.partition)?.is_some_and(|row| row.lease.may_claim(fence)) {
        return Ok(ClaimOutcome::Fenced);
    }
    match claim.kind {
        ClaimKind::Ordinary => claim_ordinary(context, claim),
        ClaimKind::Trial => claim_trial(context, claim),
    }
}

fn claim_ordinary(context: &mut WriteContext<'_>, claim: &Claim) -> CommandResult<ClaimOutcome> {
    let (partition, limit) = (claim.fence.partition.0, claim.limit.max(1) as usize);
    let scan_start = context.scan_starts.get(&partition).copied().unwrap_or(0);
    let blocked = blocked_keys::any(context, partition)?;
    let mut ready = context.sql.prepare_cached(if blocked { READY_AROUND_BLOCKS } else { READY })?;
    let ready = scan(ready.query(params![partition, scan_start])?, limit, CandidateKind::Ready)?;
    let mut heads = CandidateScan::default();
    if blocked {
        let mut due = context.sql.prepare_cached(DUE_HEADS)?;
        heads = scan(due.query(params![partition, context.now.millis()])?, limit, CandidateKind::Head)?;
    }
    let ClaimPlan { taken, last_ready, more, next_scan } = claim_plan::plan(ready, heads, claim.limit);
    if let Some(last) = last_ready {
        // One statement for the whole range where the claim takes every row in it; otherwise one for each row.
        if blocked {
            take_each(context, claim, &taken, CandidateKind::Ready)?
        } else {
            take_range(context, claim, scan_start, last)?
        }
    }
    take_each(context, claim, &taken, CandidateKind::Head)?;
    record_scan_start(context, partition, next_scan)?;
    if taken.is_empty() {
        let (next_due, suspect_due) =
            (blocked_keys::next_due(context, partition)?, blocked_keys::suspect_due(context, partition)?);
        return Ok(ClaimOutcome::NoneDue { next_due, suspect_due });
    }
    open_batch(context, claim, taken, more)
}

fn claim_trial(context: &mut WriteContext<'_>, claim: &Claim) -> CommandResult<ClaimOutcome> {
    let partition = claim.fence.partition.0;
    match due_suspect(context, partition)? {
        Some(suspect) => {
            take_each(context, claim, std::slice::from_ref(&suspect), CandidateKind::Head)?;
            open_batch(context, claim, vec![suspect], false)
        }
        None => Ok(ClaimOutcome::NoneDue { next_due: blocked_keys::next_due(context, partition)?, suspect_due: false }),
    }
}

/// The suspect that has waited longest and has no earlier row of its key to be sent first (an operator may have made one due).
fn due_suspect(context: &WriteContext<'_>, partition: u32) -> CommandResult<Option<Candidate>> {
    let mut due = context.sql.prepare_cached(
        "SELECT b.head_id FROM outbox_blocked b WHERE b.partition = ?1 AND b.next_attempt_at <= ?2 AND b.suspect = 1
           AND NOT EXISTS (SELECT 1 FROM outbox_event e CROSS JOIN outbox q ON q.partition = b.partition AND q.id = e.id
             WHERE e.key = b.key AND e.id < b.head_id AND q.status = 0)
         ORDER BY b.next_attempt_at, b.head_id LIMIT ?3",
    )?;
    let ids = due.query_map(params![partition, context.now.millis(), SUSPECTS_EXAMINED], |row| row.get::<_, i64>(0))?;
    for id in ids {
        let mut suspect = context.sql.prepare_cached(WAITING_ROW)?;
        let found = suspect
            .query_row(params![partition, id?], |row| Ok(read_candidate(row, CandidateKind::Head, None)))
            .optional()?;
        if let Some(found) = found {
            return found.map(Some);
        }
    }
    Ok(None)
}

/// Reads candidates up to the limit of rows or of bytes.
fn scan(mut rows: Rows<'_>, limit: usize, kind: CandidateKind) -> CommandResult<CandidateScan> {
    let (mut candidates, mut bytes) = (Vec::<Candidate>::new(), 0);
    while let Some(row) = rows.next()? {
        if candidates.len() == limit || bytes >= outbox::limits::BATCH_BYTES_MAX {
            return Ok(CandidateScan { candidates, more: true });
        }
        let candidate = read_candidate(row, kind, candidates.last().map(|last| &last.row))?;
        bytes += payload_bytes(&candidate.row);
        candidates.push(candidate);
    }
    Ok(CandidateScan { candidates, more: false })
}

/// The event of a row, in the form of a claimed one; `None` if it was deleted.
pub(crate) fn find_event(sql: &Connection, id: RowId) -> CommandResult<Option<ClaimedRow>> {
    let mut event = sql.prepare_cached(EVENT)?;
    let found = event.query_row([id], |row| Ok(read_candidate(row, CandidateKind::Ready, None))).optional()?;
    Ok(found.transpose()?.map(|candidate| candidate.row))
}

fn read_candidate(row: &Row<'_>, kind: CandidateKind, last: Option<&ClaimedRow>) -> CommandResult<Candidate> {
    let shared = |column: usize, known: Option<&Arc<str>>| -> CommandResult<Arc<str>> {
        // Consecutive rows mostly share type and topic: one allocation for all of them.
        let value = text(row, column)?.unwrap_or("");
        Ok(known.filter(|known| &***known == value).cloned().unwrap_or_else(|| value.into()))
    };
    let (parent, state) = (text(row, 12)?, text(row, 13)?);
    let claimed = ClaimedRow {
        id: row.get(0)?,
        event_id: EventId::from_bytes(row.get::<_, Option<_>>(4)?.unwrap_or_default()),
        key: EventKey::from_stored(row.get(1)?, text(row, 16)?),
        event_type: shared(5, last.map(|last| &last.event_type))?,
        topic: shared(6, last.map(|last| &last.topic))?,
        payload: row.get_ref(15)?.as_blob_or_null().map_err(rusqlite::Error::from)?.map(Arc::from),
        sequence: row.get::<_, Option<i64>>(7)?.unwrap_or_default() as u64,
        occurred_at: Timestamp::from_millis(row.get::<_, Option<_>>(8)?.unwrap_or_default()),
        stamp: stamp(row, last)?,
        trace: parent.map(|parent| TraceContext { parent: parent.into(), state: state.map(Arc::from) }),
        request_id: text(row, 19)?.map(Arc::from),
        headers: text(row, 17)?.map(EventHeaders::from_json).unwrap_or_default(),
        content_type: text(row, 18)?.map(Arc::from),
        contract_checksum: row.get(20)?,
        attempt: row.get::<_, u32>(3)? + 1,
        created_at: Timestamp::from_millis(row.get::<_, Option<_>>(14)?.unwrap_or_default()),
    };
    Ok(Candidate { row: claimed, deaths: row.get(2)?, kind })
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> CommandResult<Option<&'r str>> {
    Ok(row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?)
}

/// The stamp of a change; an event without one has an empty region.
fn stamp(row: &Row<'_>, last: Option<&ClaimedRow>) -> CommandResult<Option<RegionStamp>> {
    let region = text(row, 9)?.unwrap_or("");
    if region.is_empty() {
        return Ok(None);
    }
    let known = last.and_then(|last| last.stamp.as_ref()).map(|stamp| &stamp.region);
    let region = known.filter(|known| known.as_str() == region).cloned().unwrap_or_else(|| RegionId::new(region));
    let hlc = Hlc {
        millis: row.get::<_, Option<_>>(10)?.unwrap_or_default(),
        counter: row.get::<_, Option<_>>(11)?.unwrap_or_default(),
    };
    Ok(Some(RegionStamp { region, hlc }))
}

/// The number that represents a claimer's name in rows.
fn claimer(context: &WriteContext<'_>, name: &str) -> CommandResult<i64> {
    let mut known = context.sql.prepare_cached("SELECT number FROM claimer WHERE name = ?1")?;
    if let Some(number) = known.query_row([name], |row| row.get(0)).optional()? {
        return Ok(number);
    }
    context.sql.prepare_cached("INSERT INTO claimer (name) VALUES (?1)")?.execute([name])?;
    Ok(context.sql.last_insert_rowid())
}

fn take_range(context: &mut WriteContext<'_>, claim: &Claim, scan_start: i64, last: i64) -> CommandResult<()> {
    let (partition, owner) = (claim.fence.partition.0, claimer(context, &claim.fence.owner.0)?);
    let mut take = context.sql.prepare_cached(
        "UPDATE outbox SET status = 1, lease_owner = ?4, lease_version = ?5, attempts = attempts + 1
         WHERE partition = ?1 AND id > ?2 AND id <= ?3 AND status = 0",
    )?;
    let taken = take.execute(params![partition, scan_start, last, owner, claim.fence.counter as i64 + 1])?;
    context.counts.move_rows(partition, code::PENDING, code::IN_FLIGHT, taken as i64);
    Ok(())
}

fn take_each(
    context: &mut WriteContext<'_>,
    claim: &Claim,
    candidates: &[Candidate],
    kind: CandidateKind,
) -> CommandResult<()> {
    let from = match kind {
        CandidateKind::Ready => code::PENDING,
        CandidateKind::Head => code::FAILED,
    };
    let mut rows = candidates.iter().filter(|candidate| candidate.kind == kind).peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let (partition, owner) = (claim.fence.partition.0, claimer(context, &claim.fence.owner.0)?);
    let mut take = context.sql.prepare_cached(
        "UPDATE outbox SET status = 1, lease_owner = ?3, lease_version = ?4, attempts = attempts + 1, next_attempt_at = NULL
         WHERE partition = ?1 AND id = ?2",
    )?;
    for candidate in rows {
        take.execute(params![partition, candidate.row.id, owner, claim.fence.counter as i64 + 1])?;
        context.counts.move_rows(partition, from, code::IN_FLIGHT, 1);
    }
    Ok(())
}

/// Stores the start of the next scan.
fn record_scan_start(context: &mut WriteContext<'_>, partition: u32, next_scan: NextScan) -> CommandResult<()> {
    let scan_start = match next_scan {
        NextScan::BehindAllRows => {
            let mut newest = context.sql.prepare_cached("SELECT max(id) FROM outbox WHERE partition = ?1")?;
            newest.query_row([partition], |row| row.get::<_, Option<i64>>(0))?
        }
        NextScan::Behind(last) => Some(last),
        NextScan::Unchanged => None,
    };
    if let Some(scan_start) = scan_start {
        context.scan_starts.insert(partition, scan_start);
    }
    Ok(())
}

/// Names the batch in the lease row.
fn open_batch(
    context: &WriteContext<'_>,
    claim: &Claim,
    candidates: Vec<Candidate>,
    more: bool,
) -> CommandResult<ClaimOutcome> {
    let token = claim.fence.counter + 1;
    let rows: Vec<ClaimedRow> = candidates.into_iter().map(|candidate| candidate.row).collect();
    let (first, last) = (rows.first().map(|row| row.id), rows.last().map(|row| row.id));
    let mut name = context.sql.prepare_cached(
        "UPDATE outbox_lease SET counter = ?2, in_flight = ?2, lane = ?3, claim_epoch = epoch, died = 0, trial = ?4, first_id = ?5,
           last_id = ?6, claimed_at = ?7 WHERE partition = ?1",
    )?;
    let trial = claim.kind == ClaimKind::Trial;
    let now = context.now.millis();
    name.execute(params![claim.fence.partition.0, token as i64, &*claim.session.0, trial, first, last, now])?;
    Ok(ClaimOutcome::Batch(ClaimedBatch { token, rows, more, store_time: context.now }))
}
