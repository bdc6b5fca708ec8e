//! Claiming: one statement finds the rows that are due, names the batch in the lease row, counts the attempts and reads the events.
//!
//! A statement that waits for the lease row continues with its old snapshot, except for that row. Therefore it compares the counter in
//! that row: every statement that changes rows raises the counter, so a claim with an old snapshot finds another counter and takes
//! nothing. Its expiry is checked once more after the wait, because PostgreSQL evaluates a condition again only if the row was changed
//! meanwhile: a claim that waited past the expiry divides by zero, which rolls it back.
use std::time::Duration;

use outbox::limits::BATCH_BYTES_MAX;
use ports::outbox::{Claim, ClaimKind, Claimed, ClaimedBatch};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{SqlValue, get};
use crate::connection::statement_error::{StatementError, StatementResult, broken};
use crate::outbox::claimed_row;
use crate::outbox::scan_start::{ScanResult, ScanStart};
use crate::store::core::Core;

/// Selects ready rows and due heads, one more of each than the limit, which shows whether more are due. Of both, in id order, the
/// statement takes as many as `outbox::claim::BatchQuota` admits. The quota ends both kinds at the same id, so no head overtakes an
/// earlier row of its key.
macro_rules! ordinary {
    () => {
        "WITH x AS MATERIALIZED (
           (SELECT q.ctid AS place, q.id, q.deaths, q.bytes, false AS head FROM outbox q
            WHERE q.partition = $1 AND q.id > $4 AND q.status = 0 AND NOT EXISTS (SELECT FROM outbox_waiting w
              WHERE w.partition = q.partition AND w.key = q.key AND w.blocks AND w.id <= q.id)
            ORDER BY q.id LIMIT $2 + 1)
           UNION ALL
           (SELECT q.ctid, q.id, q.deaths, q.bytes, true FROM outbox_waiting w JOIN outbox q ON q.partition = w.partition AND q.id = w.id
            WHERE w.partition = $1 AND w.due <= statement_timestamp() AND w.blocks AND NOT w.suspect AND q.status = 2
              AND NOT EXISTS (SELECT FROM outbox_waiting b WHERE b.partition = w.partition AND b.key = w.key AND b.blocks AND b.id < w.id)
            ORDER BY w.id LIMIT $2 + 1)),
         y AS (SELECT x.*, row_number() OVER w <= min(greatest($2 >> (3 * least(deaths, 20)), 1)) OVER w
             AND (row_number() OVER w = 1 OR sum(bytes) OVER w - bytes < $8) AS taken
           FROM x WINDOW w AS (ORDER BY id ROWS UNBOUNDED PRECEDING)),"
    };
}

/// Selects the suspect that has been due longest, unless an earlier row of its key is unsent (an operator may have retried one).
macro_rules! trial {
    () => {
        "WITH y AS MATERIALIZED (
           SELECT q.ctid AS place, q.id, true AS head, true AS taken FROM outbox_waiting w
             JOIN outbox q ON q.partition = w.partition AND q.id = w.id
           WHERE w.partition = $1 AND w.due <= statement_timestamp() AND w.blocks AND w.suspect AND q.status = 2
             AND NOT EXISTS (SELECT FROM outbox_waiting b WHERE b.partition = w.partition AND b.key = w.key AND b.blocks AND b.id < w.id)
             AND NOT EXISTS (SELECT FROM outbox_event e JOIN outbox p ON p.partition = w.partition AND p.id = e.id
               WHERE e.key = w.key AND e.id < w.id AND p.status = 0)
             AND $2 > 0 AND $4 IS NOT NULL AND $8 > 0
           ORDER BY w.due, w.id LIMIT 1),"
    };
}

macro_rules! take {
    ($trial:literal) => {
        concat!(
            "s AS MATERIALIZED (SELECT array_agg(place) FILTER (WHERE taken) AS places, min(id) FILTER (WHERE taken) AS first,
               max(id) FILTER (WHERE taken) AS last, max(id) FILTER (WHERE taken AND NOT head) AS last_ready,
               coalesce(bool_or(NOT taken AND NOT head), false) AS ready_left, coalesce(bool_or(NOT taken), false) AS more,
               pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
               CASE WHEN bool_or(taken) THEN pg_current_xact_id()::text::bigint END AS xid FROM y),
             l AS MATERIALIZED (UPDATE outbox_lease t SET counter = counter + 1, in_flight = counter + 1, lane = $7, claim_epoch = epoch,
                 died = false, trial = ",
            $trial,
            ", first_id = s.first, last_id = s.last
               FROM s WHERE s.places IS NOT NULL AND t.partition = $1 AND t.owner = $3 AND t.epoch = $5 AND t.counter = $6
                 AND t.in_flight IS NULL AND t.expires_at > clock_timestamp()
               RETURNING t.counter / (t.expires_at > clock_timestamp())::int AS counter),
             c AS MATERIALIZED (UPDATE outbox o SET status = 1, lease_owner = $3, lease_version = l.counter, attempts = o.attempts + 1,
                 next_attempt_at = NULL FROM l WHERE o.ctid = ANY((SELECT places FROM s)::tid[]) RETURNING o.id, o.key, o.attempts)
             SELECT s.places IS NOT NULL, s.last_ready, s.ready_left, s.more, s.xmin, s.xid, l.counter, c.id, c.key, c.attempts, e.event_id,
               e.type, e.topic, e.sequence, e.occurred_at, e.region, e.hlc_millis, e.hlc_counter, e.traceparent, e.tracestate, e.created_at,
               e.payload
             FROM s LEFT JOIN l ON true LEFT JOIN c ON true LEFT JOIN outbox_event e ON e.id = c.id"
        )
    };
}

const ORDINARY: &str = concat!(ordinary!(), take!("false"));
const TRIAL: &str = concat!(trial!(), take!("true"));

/// After a claim that found nothing due: whether the fence is valid, when the next head is due, and whether a suspect is due.
const NOTHING_DUE: &str = "SELECT coalesce(l.owner = $2 AND l.epoch = $3 AND l.counter = $4 AND l.in_flight IS NULL
       AND l.expires_at > clock_timestamp(), false),
     (SELECT extract(epoch FROM min(w.due) - statement_timestamp())::float8 FROM outbox_waiting w
       WHERE w.partition = $1 AND w.blocks AND w.due > statement_timestamp()),
     EXISTS (SELECT FROM outbox_waiting w WHERE w.partition = $1 AND w.blocks AND w.suspect AND w.due <= statement_timestamp())
     FROM outbox_lease l WHERE l.partition = $1";

/// Claims the rows that are due, under the fence.
pub(crate) async fn claim(core: &Core, claim: Claim) -> StatementResult<Claimed> {
    let session = core.relay_session().await?;
    let fence = &claim.fence;
    let partition = fence.partition.0;
    // Removed before the statement: after any failure the start is unknown.
    let known = core.take_scan_start(partition).filter(|start| start.is_valid_for(fence));
    let mut start = known.unwrap_or_else(|| ScanStart::new(fence));
    let values: [SqlValue<'_>; 8] = [
        (&(partition as i32), Type::INT4),
        (&i64::from(claim.limit.max(1)), Type::INT8),
        (&&*fence.owner.0, Type::TEXT),
        (&start.id(), Type::INT8),
        (&(fence.epoch as i64), Type::INT8),
        (&(fence.counter as i64), Type::INT8),
        (&&*claim.session.0, Type::TEXT),
        (&(BATCH_BYTES_MAX as i64), Type::INT8),
    ];
    let text = match claim.kind {
        ClaimKind::Ordinary => ORDINARY,
        ClaimKind::Trial => TRIAL,
    };
    let rows = match session.execute(text, &values).await {
        Err(StatementError::LeaseExpired) => return Ok(Claimed::Fenced),
        result => result?,
    };
    let Some(first) = rows.first() else { return Ok(Claimed::Fenced) };
    if !get::<bool>(first, 0)? {
        let nothing = nothing_due(&session, &claim).await?;
        if claim.kind == ClaimKind::Ordinary && matches!(nothing, Claimed::Nothing { .. }) {
            start.record(scan_result(first)?);
            core.put_scan_start(partition, start);
        }
        return Ok(nothing);
    }
    let Some(token) = get::<Option<i64>>(first, 6)? else { return Ok(Claimed::Fenced) };
    let batch = ClaimedBatch { token: token as u64, rows: claimed_row::read_all(&rows)?, more: get(first, 3)? };
    if batch.rows.is_empty() {
        return Err(broken(format!("claim {token} of partition {partition} selected rows and updated none")));
    }
    if claim.kind == ClaimKind::Ordinary {
        start.record(scan_result(first)?);
    }
    start.set_counter(batch.token);
    core.put_scan_start(partition, start);
    Ok(Claimed::Batch(batch))
}

fn scan_result(row: &Row) -> StatementResult<ScanResult> {
    let (last, xid) = (get::<Option<i64>>(row, 1)?, get::<Option<i64>>(row, 5)?);
    Ok(ScanResult { last: last.zip(xid), complete: !get::<bool>(row, 2)?, xmin: get(row, 4)? })
}

async fn nothing_due(session: &PooledSession, claim: &Claim) -> StatementResult<Claimed> {
    let fence = &claim.fence;
    let values: [SqlValue<'_>; 4] = [
        (&(fence.partition.0 as i32), Type::INT4),
        (&&*fence.owner.0, Type::TEXT),
        (&(fence.epoch as i64), Type::INT8),
        (&(fence.counter as i64), Type::INT8),
    ];
    let rows = session.query(NOTHING_DUE, &values).await?;
    let Some(row) = rows.first() else { return Ok(Claimed::Fenced) };
    if !get::<bool>(row, 0)? {
        return Ok(Claimed::Fenced);
    }
    let next_due = get::<Option<f64>>(row, 1)?.map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
    let suspect_due = claim.kind == ClaimKind::Ordinary && get(row, 2)?;
    Ok(Claimed::Nothing { next_due, suspect_due })
}
