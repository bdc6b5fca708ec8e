//! Claims of several partitions in one statement.
//!
//! It selects per partition what the claim of one partition selects, then locks the lease rows in the order of their numbers, then takes
//! the partitions whose row still has the owner, the epoch and the counter of their claim. After a wait for a lock PostgreSQL continues with
//! the statement's old snapshot and reads only the locked row again; the counter shows whether anything of that partition changed meanwhile.
//! A partition that fails the comparison drops out by itself. The expiry is compared after the last lock was acquired, with the value of the
//! locked row, so that a lease that expired during the wait drops out as well and one that was renewed does not.
use std::collections::HashMap;

use domain::Timestamp;
use outbox::LeaseFence;
use outbox::limits::BATCH_BYTES_MAX;
use ports::outbox::{Claim, ClaimOutcome, ClaimedBatch};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::sql_value::{SqlValue, get, get_time};
use crate::connection::statement_error::{StatementResult, broken};
use crate::outbox::claim::{next_due, scan_result, scan_snapshot};
use crate::outbox::claim_text::{batch, candidates, snapshot, waiting};
use crate::outbox::claimed_row::{self, event_columns};
use crate::outbox::scan::scan_snapshot::{SampleId, ScanBounds, ScanSnapshot};
use crate::store::context::StoreContext;

/// Returns a row with the snapshot (its partition is NULL), one for each partition, and one for each claimed row. Locked rows are counted
/// so that all locks are acquired before the first expiry is compared. A batch passes through the statement as arrays, without a join on the
/// partition, and events are found one by one, so that the plan does not depend on how many rows the planner expects. What the lease rows are joined
/// with is materialized: PostgreSQL then compares a row that changed during the wait with the copy that it matched before.
const CLAIM: &str = concat!(
    "WITH server_state AS MATERIALIZED (",
    snapshot!(),
    "),
     late AS MATERIALIZED (SELECT running.base, min(running.low) AS low
       FROM unnest($9::int4[], $10::int8[], $11::int8[]) running (base, xid, low), server_state
       WHERE pg_visible_in_snapshot(running.xid::text::xid8, server_state.snapshot) GROUP BY running.base),
     asked AS MATERIALIZED (SELECT asked.partition, asked.owner, asked.epoch, asked.counter, asked.lane, asked.size,
         CASE WHEN server_state.source = $12 AND coalesce(server_state.sequence_value >= $15, true)
           THEN least(asked.start, late.low) ELSE 0 END AS start
       FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::text[], $6::int8[], $7::int8[], $8::int4[])
         asked (partition, owner, epoch, counter, lane, size, start, base) CROSS JOIN server_state LEFT JOIN late ON late.base = asked.base),
     candidate AS MATERIALIZED (SELECT asked.partition, asked.size, found.id, found.key, found.attempts, found.deaths, found.bytes, found.head
       FROM asked CROSS JOIN LATERAL (",
    candidates!("asked.partition", "asked.start", "least(asked.size, $13) + 1"),
    ") found),
     marked AS (SELECT candidate.*, row_number() OVER in_order <= least(min(greatest(size >> (3 * least(deaths, 20)), 1)) OVER in_order, $13)
         AND (row_number() OVER in_order = 1 OR sum(bytes) OVER in_order - bytes < $14) AS taken
       FROM candidate WINDOW in_order AS (PARTITION BY partition ORDER BY id ROWS UNBOUNDED PRECEDING)),
     batch AS MATERIALIZED (SELECT partition, ",
    batch!(),
    " FROM marked GROUP BY partition),
     claimable AS MATERIALIZED (SELECT asked.partition, asked.owner, asked.epoch, asked.counter
       FROM asked JOIN batch ON batch.partition = asked.partition),
     locked_lease AS MATERIALIZED (SELECT lease.partition, lease.expires_at
       FROM claimable JOIN outbox_lease lease ON lease.partition = claimable.partition
       WHERE lease.owner = claimable.owner AND lease.epoch = claimable.epoch AND lease.counter = claimable.counter AND lease.in_flight IS NULL
       ORDER BY lease.partition FOR UPDATE OF lease),
     all_locked AS MATERIALIZED (SELECT partition, expires_at, count(*) OVER () AS locked FROM locked_lease),
     claimed AS MATERIALIZED (UPDATE outbox_lease lease SET counter = lease.counter + 1, in_flight = lease.counter + 1, lane = asked.lane,
         claim_epoch = lease.epoch, claimer = lease.owner, claimed_at = statement_timestamp(), died = false, trial = false,
         first_id = batch.first, last_id = batch.last, open_ids = batch.ids
       FROM all_locked JOIN asked ON asked.partition = all_locked.partition JOIN batch ON batch.partition = all_locked.partition
       WHERE lease.partition = all_locked.partition AND all_locked.locked > 0 AND all_locked.expires_at > clock_timestamp()
       RETURNING lease.partition, lease.counter, batch.ids, batch.keys, batch.attempts)
     SELECT NULL::int4 AS partition, server_state.source, server_state.sequence_value, server_state.snapshot::text, (SELECT max(last) FROM batch) AS last,
       CASE WHEN EXISTS (SELECT FROM batch) THEN pg_current_xact_id()::text::bigint END AS xid,
       NULL::int8 AS start, NULL::bool AS is_due, NULL::int8 AS last_ready, NULL::bool AS ready_left, NULL::bool AS more, NULL::int8 AS counter,
       NULL::bool AS holds_lease, NULL::float8 AS next_due, NULL::bool AS suspect_due, NULL::bool AS heads,
       NULL::int8, NULL::uuid, NULL::int4, NULL::uuid, NULL::text, NULL::text, NULL::int8, NULL::timestamptz, NULL::text, NULL::int8,
       NULL::int8, NULL::text, NULL::text, NULL::timestamptz, NULL::bytea, NULL::text, NULL::text, NULL::text,
       NULL::text, NULL::int4, now() AS begun_at
     FROM server_state
     UNION ALL
     SELECT asked.partition, NULL, NULL, NULL, NULL, NULL, asked.start, batch.partition IS NOT NULL, batch.last_ready, batch.ready_left, batch.more,
       claimed.counter, nothing.holds_lease, nothing.next_due, nothing.suspect_due, batch.heads, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
     FROM asked LEFT JOIN batch ON batch.partition = asked.partition LEFT JOIN claimed ON claimed.partition = asked.partition LEFT JOIN LATERAL (
       SELECT coalesce(lease.owner = asked.owner AND lease.epoch = asked.epoch AND lease.counter = asked.counter AND lease.in_flight IS NULL
           AND lease.expires_at > clock_timestamp(), false) AS holds_lease, ",
    waiting!("asked.partition"),
    " FROM outbox_lease lease WHERE lease.partition = asked.partition AND batch.partition IS NULL) nothing ON true
     UNION ALL
     SELECT claimed.partition, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, taken.id,
       taken.key, taken.attempts + 1, event.*, NULL
     FROM claimed CROSS JOIN LATERAL unnest(claimed.ids, claimed.keys, claimed.attempts) taken (id, key, attempts) LEFT JOIN LATERAL (SELECT ",
    event_columns!(),
    " FROM outbox_event event WHERE event.id = taken.id OFFSET 0) event ON true"
);

/// The column of a claimed row's id; NULL in the other rows, of which the columns are read by name.
const ROW_ID: usize = 16;

/// Claims of different partitions, and their parameters as columns.
pub(crate) struct ClaimGroup<'a> {
    claims: Vec<&'a Claim>,
    partitions: Vec<i32>,
    owners: Vec<&'a str>,
    epochs: Vec<i64>,
    counters: Vec<i64>,
    sessions: Vec<&'a str>,
    sizes: Vec<i64>,
    bounds: ScanBounds,
    rows_max: i64,
    bytes_max: i64,
    sample: SampleId,
}

pub(crate) struct GroupedClaim<'a> {
    pub(crate) claim: &'a Claim,
    /// Whether the round settles the partition's open batch before it; the claim's counter is the one that this leaves.
    pub(crate) after_settlement: bool,
}

impl<'a> ClaimGroup<'a> {
    /// `sample` says whether the claims are the first statement of their transaction.
    pub(crate) fn new(context: &StoreContext, claims: Vec<GroupedClaim<'a>>, sample: SampleId) -> Self {
        let known = |GroupedClaim { claim, after_settlement }: &GroupedClaim<'_>| {
            let (fence, start) = (&claim.fence, context.scan_starts.take(claim.fence.partition.0)?);
            let valid =
                if *after_settlement { start.is_valid_after_settlement(fence) } else { start.is_valid_for(fence) };
            valid.then_some(start)
        };
        let known: Vec<_> = claims.iter().map(known).collect();
        let claims: Vec<&Claim> = claims.into_iter().map(|grouped| grouped.claim).collect();
        let (options, shares) = (&context.options, claims.len().max(1));
        Self {
            partitions: claims.iter().map(|claim| claim.fence.partition.0 as i32).collect(),
            owners: claims.iter().map(|claim| &*claim.fence.owner.0).collect(),
            epochs: claims.iter().map(|claim| claim.fence.epoch as i64).collect(),
            counters: claims.iter().map(|claim| claim.fence.counter as i64).collect(),
            sessions: claims.iter().map(|claim| &*claim.session.0).collect(),
            sizes: claims.iter().map(|claim| i64::from(claim.limit.max(1))).collect(),
            bounds: context.scan_starts.bounds(&known),
            rows_max: (i64::from(options.relay_group_rows_max) / shares as i64).max(1),
            bytes_max: (options.relay_group_bytes_max / shares).clamp(1, BATCH_BYTES_MAX) as i64,
            sample,
            claims,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// The statement and its parameters; `None` without claims.
    pub(crate) fn statement(&self) -> Option<(&'static str, Vec<SqlValue<'_>>)> {
        let values: Vec<SqlValue<'_>> = vec![
            (&self.partitions, Type::INT4_ARRAY),
            (&self.owners, Type::TEXT_ARRAY),
            (&self.epochs, Type::INT8_ARRAY),
            (&self.counters, Type::INT8_ARRAY),
            (&self.sessions, Type::TEXT_ARRAY),
            (&self.sizes, Type::INT8_ARRAY),
            (&self.bounds.starts, Type::INT8_ARRAY),
            (&self.bounds.bases, Type::INT4_ARRAY),
            (&self.bounds.base_numbers, Type::INT4_ARRAY),
            (&self.bounds.running, Type::INT8_ARRAY),
            (&self.bounds.ids_below, Type::INT8_ARRAY),
            (&self.bounds.source, Type::INT8),
            (&self.rows_max, Type::INT8),
            (&self.bytes_max, Type::INT8),
            (&self.bounds.sequence_value, Type::INT8),
        ];
        (!self.is_empty()).then_some((CLAIM, values))
    }

    /// The result of each claim, in their order. The transaction was sent at `sent`.
    pub(crate) fn results(
        &self,
        context: &StoreContext,
        rows: Vec<Row>,
        sent: Instant,
    ) -> StatementResult<Vec<StatementResult<ClaimOutcome>>> {
        let mut snapshot = None;
        let mut parts: HashMap<u32, PartitionResult<'_>> = HashMap::new();
        for row in &rows {
            let Some(partition) = get::<Option<i32>>(row, "partition")? else {
                snapshot = Some((
                    scan_snapshot(row, &self.bounds, self.sample)?,
                    get_time(row, "begun_at")?.plus(sent.elapsed()),
                ));
                continue;
            };
            let part = parts.entry(partition.unsigned_abs()).or_default();
            if get::<Option<i64>>(row, ROW_ID)?.is_some() { part.rows.push(row) } else { part.summary = Some(row) }
        }
        let (snapshot, store_time) = snapshot.ok_or_else(|| broken("a grouped claim returned no snapshot"))?;
        context.scan_starts.record_snapshot(&snapshot);
        let result = |claim: &&Claim| match parts.get(&claim.fence.partition.0) {
            Some(part) => part.claimed(context, &claim.fence, (&snapshot, store_time)),
            None => Ok(ClaimOutcome::Fenced),
        };
        Ok(self.claims.iter().map(result).collect())
    }
}

/// The returned rows of one partition.
#[derive(Default)]
struct PartitionResult<'a> {
    summary: Option<&'a Row>,
    rows: Vec<&'a Row>,
}

impl PartitionResult<'_> {
    fn claimed(
        &self,
        context: &StoreContext,
        fence: &LeaseFence,
        (snapshot, store_time): (&ScanSnapshot, Timestamp),
    ) -> StatementResult<ClaimOutcome> {
        let Some(summary) = self.summary else { return Ok(ClaimOutcome::Fenced) };
        let partition = fence.partition.0;
        let record = |counter| -> StatementResult<()> {
            context.scan_starts.record_scan(partition, snapshot, &scan_result(summary, fence.epoch, counter)?);
            Ok(())
        };
        if !get::<bool>(summary, "is_due")? {
            if get::<Option<bool>>(summary, "holds_lease")? != Some(true) {
                return Ok(ClaimOutcome::Fenced);
            }
            record(fence.counter)?;
            return Ok(ClaimOutcome::NoneDue {
                next_due: next_due(get(summary, "next_due")?),
                suspect_due: get(summary, "suspect_due")?,
            });
        }
        let Some(token) = get::<Option<i64>>(summary, "counter")? else { return Ok(ClaimOutcome::Fenced) };
        let rows = claimed_row::read_all(self.rows.iter().copied(), ROW_ID)?;
        if rows.is_empty() {
            return Err(broken(format!("claim {token} of partition {partition} selected rows and returned none")));
        }
        record(token as u64)?;
        Ok(ClaimOutcome::Batch(ClaimedBatch { token: token as u64, rows, more: get(summary, "more")?, store_time }))
    }
}
