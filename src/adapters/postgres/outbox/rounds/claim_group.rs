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
use ports::outbox::{Claim, Claimed, ClaimedBatch};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::sql_value::{SqlValue, get, get_time};
use crate::connection::statement_error::{StatementResult, broken};
use crate::outbox::claim::next_due;
use crate::outbox::claim_text::{batch, candidates, snapshot, waiting};
use crate::outbox::claimed_row::{self, event_columns};
use crate::outbox::scan_start::{SampleId, ScanBounds, ScanResult, ScanSnapshot};
use crate::store::core::Core;

/// Returns a row with the snapshot (its partition is NULL), one for each partition, and one for each claimed row. Locked rows are counted
/// so that all locks are acquired before the first expiry is compared. A batch passes through the statement as arrays, without a join on
/// the partition, and events are found one by one, so that the plan does not depend on how many rows the planner expects. What the lease rows are joined with is
/// materialized: PostgreSQL then compares a row that changed during the wait with the copy that it matched before.
const CLAIM: &str = concat!(
    "WITH n AS MATERIALIZED (",
    snapshot!(),
    "),
     b AS MATERIALIZED (SELECT v.base, min(v.low) AS low FROM unnest($9::int4[], $10::int8[], $11::int8[]) v (base, xid, low), n
       WHERE pg_visible_in_snapshot(v.xid::text::xid8, n.snapshot) GROUP BY v.base),
     u AS MATERIALIZED (SELECT u.partition, u.owner, u.epoch, u.counter, u.lane, u.size,
         CASE WHEN n.server = $12 THEN least(u.start, b.low) ELSE 0 END AS start
       FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::text[], $6::int8[], $7::int8[], $8::int4[])
         u (partition, owner, epoch, counter, lane, size, start, base) CROSS JOIN n LEFT JOIN b ON b.base = u.base),
     x AS MATERIALIZED (SELECT u.partition, u.size, q.id, q.key, q.attempts, q.deaths, q.bytes, q.head FROM u CROSS JOIN LATERAL (",
    candidates!("u.partition", "u.start", "least(u.size, $13) + 1"),
    ") q),
     y AS (SELECT x.*, row_number() OVER w <= least(min(greatest(size >> (3 * least(deaths, 20)), 1)) OVER w, $13)
         AND (row_number() OVER w = 1 OR sum(bytes) OVER w - bytes < $14) AS taken
       FROM x WINDOW w AS (PARTITION BY partition ORDER BY id ROWS UNBOUNDED PRECEDING)),
     s AS MATERIALIZED (SELECT partition, ",
    batch!(),
    " FROM y GROUP BY partition),
     v AS MATERIALIZED (SELECT u.partition, u.owner, u.epoch, u.counter FROM u JOIN s ON s.partition = u.partition),
     k AS MATERIALIZED (SELECT t.partition, t.expires_at FROM v JOIN outbox_lease t ON t.partition = v.partition
       WHERE t.owner = v.owner AND t.epoch = v.epoch AND t.counter = v.counter AND t.in_flight IS NULL
       ORDER BY t.partition FOR UPDATE OF t),
     h AS MATERIALIZED (SELECT k.partition, k.expires_at, count(*) OVER () AS locked FROM k),
     l AS MATERIALIZED (UPDATE outbox_lease t SET counter = t.counter + 1, in_flight = t.counter + 1, lane = u.lane, claim_epoch = t.epoch,
         claimer = t.owner, claimed_at = statement_timestamp(), died = false, trial = false, first_id = s.first, last_id = s.last, open_ids = s.ids
       FROM h JOIN u ON u.partition = h.partition JOIN s ON s.partition = h.partition
       WHERE t.partition = h.partition AND h.locked > 0 AND h.expires_at > clock_timestamp()
       RETURNING t.partition, t.counter, s.ids, s.keys, s.attempts)
     SELECT NULL::int4, n.server, n.snapshot::text, (SELECT max(last) FROM s),
       CASE WHEN EXISTS (SELECT FROM s) THEN pg_current_xact_id()::text::bigint END,
       NULL::int8, NULL::bool, NULL::int8, NULL::bool, NULL::bool, NULL::int8, NULL::bool, NULL::float8, NULL::bool,
       NULL::bool, NULL::int8, NULL::uuid, NULL::int4, NULL::uuid, NULL::text, NULL::text, NULL::int8, NULL::timestamptz, NULL::text, NULL::int8,
       NULL::int8, NULL::text, NULL::text, NULL::timestamptz, NULL::bytea, NULL::text, NULL::text, NULL::text,
       NULL::text, NULL::int4, now()
     FROM n
     UNION ALL
     SELECT u.partition, NULL, NULL, NULL, NULL, u.start, s.partition IS NOT NULL, s.last_ready, s.ready_left, s.more, l.counter,
       z.valid, z.next_due, z.suspect_due, s.heads, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
     FROM u LEFT JOIN s ON s.partition = u.partition LEFT JOIN l ON l.partition = u.partition LEFT JOIN LATERAL (
       SELECT coalesce(t.owner = u.owner AND t.epoch = u.epoch AND t.counter = u.counter AND t.in_flight IS NULL
           AND t.expires_at > clock_timestamp(), false) AS valid, ",
    waiting!("u.partition"),
    " FROM outbox_lease t WHERE t.partition = u.partition AND s.partition IS NULL) z ON true
     UNION ALL
     SELECT l.partition, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, c.id, c.key, c.attempts + 1, e.*, NULL
     FROM l CROSS JOIN LATERAL unnest(l.ids, l.keys, l.attempts) c (id, key, attempts) LEFT JOIN LATERAL (SELECT ",
    event_columns!(),
    " FROM outbox_event e WHERE e.id = c.id OFFSET 0) e ON true"
);

/// The column of a claimed row's id.
const ROW_ID: usize = 15;
/// The column of the transaction's begin, the last one of the row with the snapshot.
const BEGUN_AT: usize = 35;

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
    pub(crate) fn new(core: &Core, claims: Vec<GroupedClaim<'a>>, sample: SampleId) -> Self {
        let known = |GroupedClaim { claim, after_settlement }: &GroupedClaim<'_>| {
            let (fence, start) = (&claim.fence, core.scan_memory.take(claim.fence.partition.0)?);
            let valid =
                if *after_settlement { start.is_valid_after_settlement(fence) } else { start.is_valid_for(fence) };
            valid.then_some(start)
        };
        let known: Vec<_> = claims.iter().map(known).collect();
        let claims: Vec<&Claim> = claims.into_iter().map(|grouped| grouped.claim).collect();
        let (options, shares) = (&core.options, claims.len().max(1));
        Self {
            partitions: claims.iter().map(|claim| claim.fence.partition.0 as i32).collect(),
            owners: claims.iter().map(|claim| &*claim.fence.owner.0).collect(),
            epochs: claims.iter().map(|claim| claim.fence.epoch as i64).collect(),
            counters: claims.iter().map(|claim| claim.fence.counter as i64).collect(),
            sessions: claims.iter().map(|claim| &*claim.session.0).collect(),
            sizes: claims.iter().map(|claim| i64::from(claim.limit.max(1))).collect(),
            bounds: core.scan_memory.bounds(&known),
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
            (&self.bounds.lows, Type::INT8_ARRAY),
            (&self.bounds.server, Type::FLOAT8),
            (&self.rows_max, Type::INT8),
            (&self.bytes_max, Type::INT8),
        ];
        (!self.is_empty()).then_some((CLAIM, values))
    }

    /// The result of each claim, in their order. The transaction was sent at `sent`.
    pub(crate) fn results(
        &self,
        core: &Core,
        rows: Vec<Row>,
        sent: Instant,
    ) -> StatementResult<Vec<StatementResult<Claimed>>> {
        let mut snapshot = None;
        let mut parts: HashMap<u32, PartitionResult<'_>> = HashMap::new();
        for row in &rows {
            let Some(partition) = get::<Option<i32>>(row, 0)? else {
                snapshot = Some((scan_snapshot(row, self.sample)?, get_time(row, BEGUN_AT)?.plus(sent.elapsed())));
                continue;
            };
            let part = parts.entry(partition.unsigned_abs()).or_default();
            if get::<Option<i64>>(row, ROW_ID)?.is_some() { part.rows.push(row) } else { part.summary = Some(row) }
        }
        let (snapshot, store_time) = snapshot.ok_or_else(|| broken("a grouped claim returned no snapshot"))?;
        core.scan_memory.record_snapshot(&snapshot);
        let result = |claim: &&Claim| match parts.get(&claim.fence.partition.0) {
            Some(part) => part.claimed(core, &claim.fence, (&snapshot, store_time)),
            None => Ok(Claimed::Fenced),
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
        core: &Core,
        fence: &LeaseFence,
        (snapshot, store_time): (&ScanSnapshot, Timestamp),
    ) -> StatementResult<Claimed> {
        let Some(summary) = self.summary else { return Ok(Claimed::Fenced) };
        let partition = fence.partition.0;
        let record = |counter| -> StatementResult<()> {
            let complete = !get::<Option<bool>>(summary, 8)?.unwrap_or(false);
            let (start, last) = (get(summary, 5)?, get(summary, 7)?);
            let took_heads = get::<Option<bool>>(summary, 14)?.unwrap_or(false);
            let scan = ScanResult { epoch: fence.epoch, counter, start, last, complete, took_heads };
            core.scan_memory.record_scan(partition, snapshot, &scan);
            Ok(())
        };
        if !get::<bool>(summary, 6)? {
            if get::<Option<bool>>(summary, 11)? != Some(true) {
                return Ok(Claimed::Fenced);
            }
            record(fence.counter)?;
            return Ok(Claimed::Nothing { next_due: next_due(get(summary, 12)?), suspect_due: get(summary, 13)? });
        }
        let Some(token) = get::<Option<i64>>(summary, 10)? else { return Ok(Claimed::Fenced) };
        let rows = claimed_row::read_all(self.rows.iter().copied(), ROW_ID)?;
        if rows.is_empty() {
            return Err(broken(format!("claim {token} of partition {partition} selected rows and returned none")));
        }
        record(token as u64)?;
        Ok(Claimed::Batch(ClaimedBatch { token: token as u64, rows, more: get(summary, 9)?, store_time }))
    }
}

fn scan_snapshot(row: &Row, sample: SampleId) -> StatementResult<ScanSnapshot> {
    ScanSnapshot::parse((get(row, 1)?, get(row, 2)?), get(row, 3)?, get(row, 4)?, sample)
}
