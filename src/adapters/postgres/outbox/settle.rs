//! Settling: one statement archives the rows of an open batch as SENT and unblocks the keys whose heads were among them. A repetition
//! of it changes nothing.
use std::collections::HashSet;

use outbox::{FencedOutcome, LeaseFence, RowId, Token};
use ports::broker::Position;
use ports::outbox::Settlement;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::session::{CommitWait, PooledSession};
use crate::connection::sql_value::{SqlValue, get};
use crate::connection::statement_error::{StatementResult, retry_conflicts};
use crate::leases::lease_row::{self, close_open_batch};
use crate::outbox::open_batch::open_row_ctids;
use crate::outbox::scan_start::ScanStart;
use crate::store::core::Core;

/// The archive stores one row per batch, with arrays parallel to `ids`. The positions arrive sorted by id and are joined with the rows
/// only if some rows have none. Columns that hardly any batch needs (a second attempt, a failure) are read only if there is a value.
const SETTLE: &str = concat!(
    "WITH l AS MATERIALIZED (SELECT partition, first_id, last_id, open_ids, claimer, claimed_at FROM outbox_lease
       WHERE partition = $1 AND owner = $2 AND epoch = $3 AND in_flight = $4 AND ($5::int8 IS NULL OR counter = $5) FOR UPDATE),
     d AS MATERIALIZED (DELETE FROM outbox o WHERE o.ctid = ANY (ARRAY(",
    open_row_ctids!(),
    ")) RETURNING o.id, o.key, o.attempts + 1 AS attempts, o.deaths, o.failure_type, o.reason),
     w AS (DELETE FROM outbox_waiting w USING d WHERE w.partition = $1 AND w.key = d.key AND w.id = d.id RETURNING 1),
     n AS MATERIALIZED (SELECT count(*) AS sent, array_agg(id) AS ids, min(id) AS first, max(id) AS last,
         max(attempts) AS attempts, max(deaths) AS deaths, count(failure_type) + count(reason) AS failures
       FROM (SELECT * FROM d ORDER BY id) d),
     p AS MATERIALIZED (SELECT array_agg(p.topic) AS topics, array_agg(p.partition) AS partitions, array_agg(p.place) AS places,
         array_agg(p.by_fallback) AS by_fallback
       FROM (SELECT p.* FROM d LEFT JOIN unnest($6::int8[], $7::text[], $8::int4[], $9::int8[], $10::bool[])
         AS p (id, topic, partition, place, by_fallback) ON p.id = d.id ORDER BY d.id) p),
     a AS (INSERT INTO outbox_archive (partition, token, owner, sent_at, events, first_id, last_id, ids, topic_partitions, topic_offsets,
           topics, by_fallback, attempts, deaths, failure_types, reasons, claimed_at)
         SELECT $1, $4, l.claimer, clock_timestamp(), n.sent, n.first, n.last, n.ids,
           CASE WHEN n.ids = $6 THEN $8 ELSE (SELECT partitions FROM p) END, CASE WHEN n.ids = $6 THEN $9 ELSE (SELECT places FROM p) END,
           CASE WHEN NOT $11 THEN NULL WHEN n.ids = $6 THEN $7 ELSE (SELECT topics FROM p) END,
           CASE WHEN NOT $11 THEN NULL WHEN n.ids = $6 THEN $10 ELSE (SELECT by_fallback FROM p) END,
           CASE WHEN n.attempts > 1 THEN ARRAY(SELECT attempts FROM d ORDER BY id) END,
           CASE WHEN n.deaths > 0 THEN ARRAY(SELECT deaths FROM d ORDER BY id) END,
           CASE WHEN n.failures > 0 THEN ARRAY(SELECT failure_type FROM d ORDER BY id) END,
           CASE WHEN n.failures > 0 THEN ARRAY(SELECT reason FROM d ORDER BY id) END, l.claimed_at
         FROM n, l WHERE n.sent > 0)
     UPDATE outbox_lease t SET ",
    close_open_batch!(),
    ", archived = t.archived + n.sent
     FROM l, n WHERE t.partition = $1 RETURNING t.counter, n.sent, (SELECT count(*) FROM w)"
);

/// The positions of sent rows, one array per column, ascending by id.
#[derive(Default)]
pub(crate) struct SentColumns<'a> {
    pub(crate) ids: Vec<RowId>,
    pub(crate) partitions: Vec<Option<i32>>,
    pub(crate) offsets: Vec<Option<i64>>,
    /// Empty if no row went to a fallback: then the topic is the event's own.
    pub(crate) topics: Vec<Option<&'a str>>,
    pub(crate) by_fallback: Vec<bool>,
}

impl<'a> SentColumns<'a> {
    pub(crate) fn of(settlement: &'a Settlement) -> Self {
        let by_fallback: HashSet<RowId> = settlement.by_fallback.iter().copied().collect();
        let known = settlement.positions.iter().map(|(row, position)| (*row, Some(position)));
        let mut positions: Vec<(RowId, Option<&Position>)> =
            known.chain(settlement.by_fallback.iter().map(|row| (*row, None))).collect();
        // The sort is stable: of a row that is named twice the first position counts, and a position before none.
        positions.sort_by_key(|(row, _)| *row);
        positions.dedup_by_key(|(row, _)| *row);
        let mut sent = Self::default();
        for (row, position) in positions {
            sent.ids.push(row);
            sent.partitions.push(position.map(|position| position.partition as i32));
            sent.offsets.push(position.map(|position| position.offset as i64));
            if !by_fallback.is_empty() {
                let fallback = by_fallback.contains(&row);
                sent.topics.push(position.filter(|_| fallback).map(|position| &*position.topic));
                sent.by_fallback.push(fallback);
            }
        }
        sent
    }
}

/// Settles under the fence. The token names the batch, so the counter is not compared.
pub(crate) async fn settle(core: &Core, settlement: &Settlement) -> StatementResult<FencedOutcome> {
    let (fence, token) = (&settlement.fence, settlement.token);
    let session = core.relay_session().await?;
    let sent = SentColumns::of(settlement);
    // Only statements from outside this program can deadlock with it, and a repetition is harmless.
    let (close, commit) = (CloseStatement::new(fence, token, None, &sent), core.options.settle_commit());
    let outcome = retry_conflicts!(close_as_sent(&session, core, fence, &close, commit))?;
    match outcome {
        Some(outcome) => Ok(outcome),
        None => repeated_close(&session, fence, token).await,
    }
}

/// Settles a batch that the watermark proves published, without positions. Compares the counter.
pub(crate) async fn settle_published(core: &Core, fence: &LeaseFence, token: Token) -> StatementResult<FencedOutcome> {
    let session = core.relay_session().await?;
    let sent = SentColumns::default();
    let close = CloseStatement::new(fence, token, Some(fence.counter as i64), &sent);
    match close_as_sent(&session, core, fence, &close, CommitWait::Flush).await? {
        Some(outcome) => Ok(outcome),
        None => repeated_close(&session, fence, token).await,
    }
}

async fn repeated_close(session: &PooledSession, fence: &LeaseFence, token: Token) -> StatementResult<FencedOutcome> {
    let lease = lease_row::read(session, fence.partition).await?;
    Ok(lease.map_or(FencedOutcome::Stale, |lease| lease.repeated_close(fence, token)))
}

/// The statement that closes one open batch as sent.
pub(crate) struct CloseStatement<'a> {
    partition: i32,
    owner: &'a str,
    epoch: i64,
    token: i64,
    counter: Option<i64>,
    sent: &'a SentColumns<'a>,
    any_fallback: bool,
}

impl<'a> CloseStatement<'a> {
    /// Closes the batch, if it is open under the fence and at this counter (`None`: any).
    pub(crate) fn new(fence: &'a LeaseFence, token: Token, counter: Option<i64>, sent: &'a SentColumns<'a>) -> Self {
        Self {
            partition: fence.partition.0 as i32,
            owner: &fence.owner.0,
            epoch: fence.epoch as i64,
            token: token as i64,
            counter,
            sent,
            any_fallback: !sent.by_fallback.is_empty(),
        }
    }

    /// The statement and its parameters.
    pub(crate) fn statement(&self) -> (&'static str, Vec<SqlValue<'_>>) {
        let values: Vec<SqlValue<'_>> = vec![
            (&self.partition, Type::INT4),
            (&self.owner, Type::TEXT),
            (&self.epoch, Type::INT8),
            (&self.token, Type::INT8),
            (&self.counter, Type::INT8),
            (&self.sent.ids, Type::INT8_ARRAY),
            (&self.sent.topics, Type::TEXT_ARRAY),
            (&self.sent.partitions, Type::INT4_ARRAY),
            (&self.sent.offsets, Type::INT8_ARRAY),
            (&self.sent.by_fallback, Type::BOOL_ARRAY),
            (&self.any_fallback, Type::BOOL),
        ];
        (SETTLE, values)
    }
}

async fn close_as_sent(
    session: &PooledSession,
    core: &Core,
    fence: &LeaseFence,
    close: &CloseStatement<'_>,
    commit: CommitWait,
) -> StatementResult<Option<FencedOutcome>> {
    let known = core.scan_memory.take(fence.partition.0);
    let rows = session.execute_all(core.options.lock_timeout, commit, &[close.statement()]).await?;
    closed(core, fence, known, rows.first().and_then(|rows| rows.first()))
}

/// The outcome from the statement's row, `None` if it closed nothing. `known` was the partition's scan start before it.
pub(crate) fn closed(
    core: &Core,
    fence: &LeaseFence,
    known: Option<ScanStart>,
    row: Option<&Row>,
) -> StatementResult<Option<FencedOutcome>> {
    let Some(row) = row else { return Ok(None) };
    let (counter, rows, unblocked): (i64, i64, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
    Ok(Some(done(core, fence, known, counter, rows, unblocked)))
}

/// The outcome of a settlement that closed the batch. `known` was the partition's scan start before it.
pub(crate) fn done(
    core: &Core,
    fence: &LeaseFence,
    known: Option<ScanStart>,
    counter: i64,
    rows: i64,
    unblocked: i64,
) -> FencedOutcome {
    let counter = counter as u64;
    // Rows behind a head that was sent may be ready now, also below the scan's start. Otherwise the start stays valid if it was valid at
    // the counter before this statement.
    if let Some(mut start) = known
        && unblocked == 0
        && start.is_valid_for(&LeaseFence { counter: counter - 1, ..fence.clone() })
    {
        start.set_counter(counter);
        core.scan_memory.put(fence.partition.0, start);
    }
    FencedOutcome::Done { counter, rows: rows as u64 }
}
