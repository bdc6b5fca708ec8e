//! Claiming: one statement finds the rows that are due, writes their ids to the lease row and reads their events. It writes no other row:
//! a row of the open batch is IN_FLIGHT, with one attempt more than its columns show, as long as the lease row names it.
//!
//! A statement that waits for the lease row continues with its old snapshot, except for that row. Therefore it compares the counter in
//! that row: every statement that changes rows raises the counter, so a claim with an old snapshot finds another counter and takes
//! nothing. The statement checks the expiry once more after the wait, because PostgreSQL evaluates a condition again only if the row was changed
//! meanwhile: the statement deliberately divides by zero if the lease expired during the lock wait; the error aborts the statement.
use std::time::Duration;

use outbox::limits::BATCH_BYTES_MAX;
use outbox::{Counter, Epoch};
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, ClaimedBatch};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{SqlValue, get, get_time};
use crate::connection::statement_error::{StatementError, StatementResult, broken};
use crate::outbox::claim_text::{batch, candidates, snapshot, waiting};
use crate::outbox::claimed_row::{self, event_columns};
use crate::outbox::scan::id_samples::IdSource;
use crate::outbox::scan::scan_snapshot::{SampleId, ScanBounds, ScanSnapshot, SnapshotRow};
use crate::outbox::scan::scan_start::{ScanResult, ScanStart};
use crate::store::context::StoreContext;

/// Selects the scan start: the remembered one, or a lower one below every id that a transaction can have inserted that was running at the remembered
/// snapshot and has ended since. 0 with another source of ids, and after their sequence went back.
macro_rules! start {
    () => {
        concat!(
            "WITH server_state AS MATERIALIZED (",
            snapshot!(),
            "),
             scan AS MATERIALIZED (SELECT snapshot, source, sequence_value, CASE WHEN source = $9 AND coalesce(sequence_value >= $12, true)
                 THEN least($4, (SELECT min(running.low)
                   FROM unnest($10::int8[], $11::int8[]) running (xid, low) WHERE pg_visible_in_snapshot(running.xid::text::xid8, snapshot)))
                 ELSE 0 END AS start FROM server_state),"
        )
    };
}

/// Selects ready rows and due heads, one more of each than the limit, which shows whether more are due. Of both, in id order, the
/// statement takes as many as `outbox::claim::BatchQuota` admits. The quota ends both kinds at the same id, so no head overtakes an
/// earlier row of its key.
macro_rules! ordinary {
    () => {
        concat!(
            "candidate AS MATERIALIZED (",
            candidates!("$1", "(SELECT start FROM scan)", "$2 + 1"),
            "),
             marked AS (SELECT candidate.*, row_number() OVER in_order <= min(greatest($2 >> (3 * least(deaths, 20)), 1)) OVER in_order
                 AND (row_number() OVER in_order = 1 OR sum(bytes) OVER in_order - bytes < $8) AS taken
               FROM candidate WINDOW in_order AS (ORDER BY id ROWS UNBOUNDED PRECEDING)),"
        )
    };
}

/// Selects the suspect that has been due longest, unless an earlier row of its key is unsent (an operator may have retried one).
macro_rules! trial {
    () => {
        "marked AS MATERIALIZED (
           SELECT queued.id, queued.key, queued.attempts, true AS head, true AS taken FROM outbox_waiting waiting CROSS JOIN LATERAL (
               SELECT queued.id, queued.key, queued.attempts FROM outbox queued
               WHERE queued.partition = waiting.partition AND queued.id = waiting.id AND queued.status = 2 OFFSET 0) queued
           WHERE waiting.partition = $1 AND waiting.due <= statement_timestamp() AND waiting.blocks AND waiting.suspect
             AND NOT EXISTS (SELECT FROM outbox_waiting blocker WHERE blocker.partition = waiting.partition AND blocker.key = waiting.key
               AND blocker.blocks AND blocker.id < waiting.id)
             AND NOT EXISTS (SELECT FROM outbox_event earlier CROSS JOIN LATERAL (
                 SELECT FROM outbox earlier_row
                 WHERE earlier_row.partition = waiting.partition AND earlier_row.id = earlier.id AND earlier_row.status = 0 OFFSET 0) earlier_row
               WHERE earlier.key = waiting.key AND earlier.id < waiting.id)
             AND $2 > 0 AND $8 > 0
           ORDER BY waiting.due, waiting.id LIMIT 1),"
    };
}

/// Takes the batch. One returned row is the summary, with the batch's arrays, each other row an event. Columns of the other kind are NULL:
/// a value that is the same on every row would cost the server as much as one of the event. Events are found one by one: with
/// the statistics of a nearly empty table, PostgreSQL looks up `id = ANY (...)` by walking the index of the keys for every id.
macro_rules! take {
    ($trial:literal) => {
        concat!(
            "batch AS MATERIALIZED (SELECT ",
            batch!(),
            ", CASE WHEN bool_or(taken) THEN pg_current_xact_id()::text::bigint END AS xid FROM marked),
             claimed AS MATERIALIZED (UPDATE outbox_lease lease SET counter = counter + 1, in_flight = counter + 1, lane = $7, claim_epoch = epoch,
                 claimer = owner, claimed_at = statement_timestamp(), died = false, trial = ",
            $trial,
            ", first_id = batch.first, last_id = batch.last, open_ids = batch.ids
               FROM batch WHERE batch.ids IS NOT NULL AND lease.partition = $1 AND lease.owner = $3 AND lease.epoch = $5 AND lease.counter = $6
                 AND lease.in_flight IS NULL AND lease.expires_at > clock_timestamp()
               RETURNING lease.counter / (lease.expires_at > clock_timestamp())::int AS counter)
             SELECT batch.ids IS NOT NULL AS is_due, batch.last_ready, batch.ready_left, batch.more, batch.last, batch.xid, scan.start, scan.source,
               scan.sequence_value, scan.snapshot::text, claimed.counter, batch.heads, batch.ids, batch.keys, batch.attempts, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
               NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, now() AS begun_at
             FROM batch CROSS JOIN scan LEFT JOIN claimed ON true
             UNION ALL
             SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, event.*, NULL
             FROM (SELECT unnest(batch.ids) AS id FROM batch CROSS JOIN claimed) open CROSS JOIN LATERAL (SELECT event.id, ",
            event_columns!(),
            " FROM outbox_event event WHERE event.id = open.id OFFSET 0) event"
        )
    };
}

/// The column of an event's id; NULL in the summary. The columns of the summary are read by name, those of the events by number.
const EVENT_ID: usize = 15;

const ORDINARY: &str = concat!(start!(), ordinary!(), take!("false"));
const TRIAL: &str = concat!(start!(), trial!(), take!("true"));

/// After a claim that found nothing due: whether the fence is valid, when the next head is due, and whether a suspect is due.
const NOTHING_DUE: &str = concat!(
    "SELECT coalesce(lease.owner = $2 AND lease.epoch = $3 AND lease.counter = $4 AND lease.in_flight IS NULL
       AND lease.expires_at > clock_timestamp(), false) AS holds_lease, ",
    waiting!("$1"),
    " FROM outbox_lease lease WHERE lease.partition = $1"
);

/// A claim of one partition as a statement.
pub(crate) struct ClaimScan<'a> {
    claim: &'a Claim,
    /// The partition's scan start before the claim, if it was known and valid.
    known: Option<ScanStart>,
    bounds: ScanBounds,
    partition: i32,
    limit: i64,
    epoch: i64,
    counter: i64,
    owner: &'a str,
    session: &'a str,
    start: i64,
    bytes_max: i64,
}

impl<'a> ClaimScan<'a> {
    /// A claim whose scan begins at a known start.
    pub(crate) fn new(context: &StoreContext, claim: &'a Claim, known: Option<ScanStart>) -> Self {
        let (fence, known) = (&claim.fence, [known]);
        let bounds = context.scan_starts.bounds(&known);
        let [known] = known;
        Self {
            claim,
            known,
            partition: fence.partition.0 as i32,
            limit: i64::from(claim.limit.max(1)),
            epoch: fence.epoch as i64,
            counter: fence.counter as i64,
            owner: &fence.owner.0,
            session: &claim.session.0,
            start: bounds.starts.first().copied().unwrap_or_default(),
            bytes_max: BATCH_BYTES_MAX as i64,
            bounds,
        }
    }

    /// The statement and its parameters.
    pub(crate) fn statement(&self) -> (&'static str, Vec<SqlValue<'_>>) {
        let text = match self.claim.kind {
            ClaimKind::Ordinary => ORDINARY,
            ClaimKind::Trial => TRIAL,
        };
        let values: Vec<SqlValue<'_>> = vec![
            (&self.partition, Type::INT4),
            (&self.limit, Type::INT8),
            (&self.owner, Type::TEXT),
            (&self.start, Type::INT8),
            (&self.epoch, Type::INT8),
            (&self.counter, Type::INT8),
            (&self.session, Type::TEXT),
            (&self.bytes_max, Type::INT8),
            (&self.bounds.source, Type::INT8),
            (&self.bounds.running, Type::INT8_ARRAY),
            (&self.bounds.ids_below, Type::INT8_ARRAY),
            (&self.bounds.sequence_value, Type::INT8),
        ];
        (text, values)
    }

    /// The claim's result from the rows of the statement, whose transaction was sent at `sent`.
    pub(crate) async fn result(
        self,
        context: &StoreContext,
        session: &PooledSession,
        (rows, sent): (&[Row], Instant),
        sample: SampleId,
    ) -> StatementResult<ClaimOutcome> {
        let (fence, partition) = (&self.claim.fence, self.claim.fence.partition.0);
        let is_ordinary = self.claim.kind == ClaimKind::Ordinary;
        let is_summary = |row: &&Row| matches!(get::<Option<i64>>(row, EVENT_ID), Ok(None));
        let Some(summary) = rows.iter().find(is_summary) else { return Ok(ClaimOutcome::Fenced) };
        let snapshot = scan_snapshot(summary, &self.bounds, sample)?;
        context.scan_starts.record_snapshot(&snapshot);
        if !get::<bool>(summary, "is_due")? {
            let nothing = nothing_due(session, self.claim).await?;
            if is_ordinary && matches!(nothing, ClaimOutcome::NoneDue { .. }) {
                context.scan_starts.record_scan(
                    partition,
                    &snapshot,
                    &scan_result(summary, fence.epoch, fence.counter)?,
                );
            }
            return Ok(nothing);
        }
        let Some(token) = get::<Option<i64>>(summary, "counter")? else { return Ok(ClaimOutcome::Fenced) };
        let rows = claimed_row::read_batch(summary, rows, EVENT_ID)?;
        let store_time = get_time(summary, "begun_at")?.plus(sent.elapsed());
        let batch = ClaimedBatch { token: token as u64, rows, more: get(summary, "more")?, store_time };
        if batch.rows.is_empty() {
            return Err(broken(format!("claim {token} of partition {partition} selected rows and returned none")));
        }
        if is_ordinary {
            context.scan_starts.record_scan(partition, &snapshot, &scan_result(summary, fence.epoch, batch.token)?);
        } else if let Some(mut start) = self.known {
            start.record_taken_head(batch.token);
            context.scan_starts.put(partition, start);
        }
        Ok(ClaimOutcome::Batch(batch))
    }
}

/// Claims the rows that are due, under the fence.
pub(crate) async fn claim(context: &StoreContext, claim: &Claim) -> StatementResult<ClaimOutcome> {
    let session = context.relay_session().await?;
    let known = context.scan_starts.take(claim.fence.partition.0).filter(|start| start.is_valid_for(&claim.fence));
    let scan = ClaimScan::new(context, claim, known);
    let sent = Instant::now();
    let executed = {
        let (text, values) = scan.statement();
        session.execute(text, &values).await
    };
    match executed {
        Err(StatementError::LeaseExpired) => Ok(ClaimOutcome::Fenced),
        rows => scan.result(context, &session, (&rows?, sent), SampleId::FromSnapshot).await,
    }
}

/// The statement's snapshot, from the row that has it.
pub(crate) fn scan_snapshot(row: &Row, bounds: &ScanBounds, sample: SampleId) -> StatementResult<ScanSnapshot> {
    let source = IdSource { source: get(row, "source")?, sequence_value: get(row, "sequence_value")? };
    let (text, highest, xid) = (get(row, "snapshot")?, get(row, "last")?, get(row, "xid")?);
    ScanSnapshot::parse(SnapshotRow { source, text, highest, xid }, bounds, sample)
}

/// Result of the scan of a partition, from its summary.
pub(crate) fn scan_result(summary: &Row, epoch: Epoch, counter: Counter) -> StatementResult<ScanResult> {
    let complete = !get::<Option<bool>>(summary, "ready_left")?.unwrap_or(false);
    let took_heads = get::<Option<bool>>(summary, "heads")?.unwrap_or(false);
    let (start, last) = (get(summary, "start")?, get(summary, "last_ready")?);
    Ok(ScanResult { epoch, counter, start, last, complete, took_heads })
}

async fn nothing_due(session: &PooledSession, claim: &Claim) -> StatementResult<ClaimOutcome> {
    let fence = &claim.fence;
    let values: [SqlValue<'_>; 4] = [
        (&(fence.partition.0 as i32), Type::INT4),
        (&&*fence.owner.0, Type::TEXT),
        (&(fence.epoch as i64), Type::INT8),
        (&(fence.counter as i64), Type::INT8),
    ];
    let rows = session.query(NOTHING_DUE, &values).await?;
    let Some(row) = rows.first() else { return Ok(ClaimOutcome::Fenced) };
    if !get::<bool>(row, "holds_lease")? {
        return Ok(ClaimOutcome::Fenced);
    }
    let suspect_due = claim.kind == ClaimKind::Ordinary && get(row, "suspect_due")?;
    Ok(ClaimOutcome::NoneDue { next_due: next_due(get(row, "next_due")?), suspect_due })
}

/// The time until the next head is due, from its seconds.
pub(crate) fn next_due(seconds: Option<f64>) -> Option<Duration> {
    seconds.map(|seconds| Duration::from_secs_f64(seconds.max(0.0)))
}
