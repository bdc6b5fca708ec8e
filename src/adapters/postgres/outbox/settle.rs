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
use crate::outbox::scan::scan_start::ScanStart;
use crate::store::context::StoreContext;

/// The archive stores one row per batch, with arrays parallel to `ids`. The positions arrive sorted by id and are joined with the rows
/// only if some rows have none. Columns that hardly any batch needs (a second attempt, a failure) are read only if there is a value.
const SETTLE: &str = concat!(
    "WITH open_batch AS MATERIALIZED (SELECT partition, first_id, last_id, open_ids, claimer, claimed_at FROM outbox_lease
       WHERE partition = $1 AND owner = $2 AND epoch = $3 AND in_flight = $4 AND ($5::int8 IS NULL OR counter = $5) FOR UPDATE),
     deleted AS MATERIALIZED (DELETE FROM outbox queued WHERE queued.ctid = ANY (ARRAY(",
    open_row_ctids!(),
    ")) RETURNING queued.id, queued.key, queued.attempts + 1 AS attempts, queued.deaths, queued.failure_type, queued.reason),
     unblocked AS (DELETE FROM outbox_waiting waiting USING deleted
       WHERE waiting.partition = $1 AND waiting.key = deleted.key AND waiting.id = deleted.id RETURNING 1),
     summary AS MATERIALIZED (SELECT count(*) AS events, array_agg(id) AS ids, min(id) AS first, max(id) AS last,
         max(attempts) AS attempts, max(deaths) AS deaths, count(failure_type) + count(reason) AS failures
       FROM (SELECT * FROM deleted ORDER BY id) deleted),
     sent_to AS MATERIALIZED (SELECT array_agg(topic) AS topics, array_agg(partition) AS partitions, array_agg(topic_offset) AS topic_offsets,
         array_agg(by_fallback) AS by_fallback
       FROM (SELECT named.* FROM deleted LEFT JOIN unnest($6::int8[], $7::text[], $8::int4[], $9::int8[], $10::bool[])
         AS named (id, topic, partition, topic_offset, by_fallback) ON named.id = deleted.id ORDER BY deleted.id) named),
     archived AS (INSERT INTO outbox_archive (partition, token, owner, sent_at, events, first_id, last_id, ids, topic_partitions, topic_offsets,
           topics, by_fallback, attempts, deaths, failure_types, reasons, claimed_at)
         SELECT $1, $4, open_batch.claimer, clock_timestamp(), summary.events, summary.first, summary.last, summary.ids,
           CASE WHEN summary.ids = $6 THEN $8 ELSE (SELECT partitions FROM sent_to) END,
           CASE WHEN summary.ids = $6 THEN $9 ELSE (SELECT topic_offsets FROM sent_to) END,
           CASE WHEN NOT $11 THEN NULL WHEN summary.ids = $6 THEN $7 ELSE (SELECT topics FROM sent_to) END,
           CASE WHEN NOT $11 THEN NULL WHEN summary.ids = $6 THEN $10 ELSE (SELECT by_fallback FROM sent_to) END,
           CASE WHEN summary.attempts > 1 THEN ARRAY(SELECT attempts FROM deleted ORDER BY id) END,
           CASE WHEN summary.deaths > 0 THEN ARRAY(SELECT deaths FROM deleted ORDER BY id) END,
           CASE WHEN summary.failures > 0 THEN ARRAY(SELECT failure_type FROM deleted ORDER BY id) END,
           CASE WHEN summary.failures > 0 THEN ARRAY(SELECT reason FROM deleted ORDER BY id) END, open_batch.claimed_at
         FROM summary, open_batch WHERE summary.events > 0)
     UPDATE outbox_lease lease SET ",
    close_open_batch!(),
    ", archived = lease.archived + summary.events
     FROM open_batch, summary WHERE lease.partition = $1 RETURNING lease.counter, summary.events, (SELECT count(*) FROM unblocked) AS unblocked"
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
    pub(crate) fn new(settlement: &'a Settlement) -> Self {
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
pub(crate) async fn settle(context: &StoreContext, settlement: &Settlement) -> StatementResult<FencedOutcome> {
    let (fence, token) = (&settlement.fence, settlement.token);
    let session = context.relay_session().await?;
    let sent = SentColumns::new(settlement);
    // Only statements from outside this program can deadlock with it, and a repetition is harmless.
    let (close, commit) = (CloseStatement::new(fence, token, None, &sent), context.options.settle_commit());
    let outcome = retry_conflicts!(close_as_sent(&session, context, fence, &close, commit))?;
    match outcome {
        Some(outcome) => Ok(outcome),
        None => repeated_close(&session, fence, token).await,
    }
}

/// Settles a batch that the watermark proves published, without positions. Compares the counter.
pub(crate) async fn settle_published(
    context: &StoreContext,
    fence: &LeaseFence,
    token: Token,
) -> StatementResult<FencedOutcome> {
    let session = context.relay_session().await?;
    let sent = SentColumns::default();
    let close = CloseStatement::new(fence, token, Some(fence.counter as i64), &sent);
    match close_as_sent(&session, context, fence, &close, CommitWait::Flush).await? {
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
    context: &StoreContext,
    fence: &LeaseFence,
    close: &CloseStatement<'_>,
    commit: CommitWait,
) -> StatementResult<Option<FencedOutcome>> {
    let known = context.scan_starts.take(fence.partition.0);
    let rows = session.execute_all(context.options.lock_timeout, commit, &[close.statement()]).await?;
    outcome_from_row(context, fence, known, rows.first().and_then(|rows| rows.first()))
}

/// The outcome from the statement's row, `None` if it closed nothing. `known` was the partition's scan start before it.
pub(crate) fn outcome_from_row(
    context: &StoreContext,
    fence: &LeaseFence,
    known: Option<ScanStart>,
    row: Option<&Row>,
) -> StatementResult<Option<FencedOutcome>> {
    let Some(row) = row else { return Ok(None) };
    let (counter, events) = (get(row, "counter")?, get(row, "events")?);
    Ok(Some(record_closed(context, fence, known, counter, events, get(row, "unblocked")?)))
}

/// Updates the partition's scan start after a settlement that closed the batch, and returns the outcome. `known` was the scan start before it.
pub(crate) fn record_closed(
    context: &StoreContext,
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
        context.scan_starts.put(fence.partition.0, start);
    }
    FencedOutcome::Done { counter, rows: rows as u64 }
}
