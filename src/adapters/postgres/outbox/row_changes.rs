//! Applying changes of rows to the tables `outbox` and `outbox_waiting`.
//!
//! `outbox_waiting` holds the rows that are FAILED or PARKED. The first of a key's rows there that blocks its key is the key's head:
//! earlier rows of the key may be claimed, later ones wait, so the order of the key is kept wherever in it a row fails.
//!
//! A row that leaves the open batch records the owner and the token of its claim. It also records the time of the claim, if its attempt is counted
//! or has failed. A row that returns to its state before the claim is not written.
use outbox::{FailureType, PartitionNo, RowChange};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::Transaction;
use crate::connection::sql_value::{SqlValue, seconds};
use crate::connection::statement_error::StatementResult;

const APPLY: &str = "WITH change AS MATERIALIZED (SELECT * FROM unnest($2::int8[], $3::uuid[], $4::int2[], $5::float8[], $6::int4[], $7::int2[],
         $8::int2[], $9::text[], $10::text[], $11::bool[], $12::bool[])
         AS change (id, key, status, due_in, attempts, deaths, trial_deaths, failure_type, reason, blocks, suspect)),
     changed AS (UPDATE outbox queued SET status = change.status, next_attempt_at = statement_timestamp() + make_interval(secs => change.due_in),
         attempts = change.attempts, last_attempt_at = CASE WHEN change.attempts > queued.attempts OR change.failure_type IS NOT NULL
           THEN coalesce(lease.claimed_at, queued.last_attempt_at) ELSE queued.last_attempt_at END,
         deaths = change.deaths, trial_deaths = change.trial_deaths,
         failure_type = coalesce(change.failure_type, queued.failure_type), reason = coalesce(change.reason, queued.reason),
         lease_owner = coalesce(lease.claimer, queued.lease_owner), lease_version = coalesce(lease.in_flight, queued.lease_version)
       FROM change LEFT JOIN outbox_lease lease ON lease.partition = $1 AND change.id = ANY (lease.open_ids)
       WHERE queued.partition = $1 AND queued.id = change.id AND (change.status >= 2
         OR (queued.status, queued.attempts, queued.deaths, queued.trial_deaths)
           IS DISTINCT FROM (change.status, change.attempts, change.deaths, change.trial_deaths))),
     gone AS (DELETE FROM outbox_waiting waiting USING change
       WHERE change.status < 2 AND waiting.partition = $1 AND waiting.key = change.key AND waiting.id = change.id)
     INSERT INTO outbox_waiting AS waiting (partition, key, id, due, blocks, suspect)
     SELECT $1, change.key, change.id, statement_timestamp() + make_interval(secs => change.due_in), change.blocks, change.suspect
     FROM change WHERE change.status >= 2
     ON CONFLICT (partition, key, id) DO UPDATE SET due = excluded.due, blocks = excluded.blocks, suspect = excluded.suspect";

/// Applies changes to rows of one partition, whose lease the transaction has locked.
pub(crate) async fn apply(
    transaction: &Transaction,
    partition: PartitionNo,
    changes: &[RowChange<Uuid>],
) -> StatementResult<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = changes.iter().map(|change| change.id).collect();
    let keys: Vec<Uuid> = changes.iter().map(|change| change.key).collect();
    let statuses: Vec<i16> = changes.iter().map(|change| change.state.code()).collect();
    let due: Vec<Option<f64>> = changes.iter().map(|change| change.state.due_in().map(seconds)).collect();
    let attempts: Vec<i32> = changes.iter().map(|change| i32::try_from(change.attempts).unwrap_or(i32::MAX)).collect();
    let deaths: Vec<i16> = changes.iter().map(|change| smallint(change.deaths)).collect();
    let trial_deaths: Vec<i16> = changes.iter().map(|change| smallint(change.trial_deaths)).collect();
    let failure_types: Vec<Option<&str>> =
        changes.iter().map(|change| change.failure_type.map(FailureType::as_str)).collect();
    let reasons: Vec<Option<&str>> = changes.iter().map(|change| change.reason.as_deref()).collect();
    let blocks: Vec<bool> = changes.iter().map(|change| change.state.blocks_key()).collect();
    let suspects: Vec<bool> = changes.iter().map(RowChange::awaits_trial).collect();
    let values: [SqlValue<'_>; 12] = [
        (&(partition.0 as i32), Type::INT4),
        (&ids, Type::INT8_ARRAY),
        (&keys, Type::UUID_ARRAY),
        (&statuses, Type::INT2_ARRAY),
        (&due, Type::FLOAT8_ARRAY),
        (&attempts, Type::INT4_ARRAY),
        (&deaths, Type::INT2_ARRAY),
        (&trial_deaths, Type::INT2_ARRAY),
        (&failure_types, Type::TEXT_ARRAY),
        (&reasons, Type::TEXT_ARRAY),
        (&blocks, Type::BOOL_ARRAY),
        (&suspects, Type::BOOL_ARRAY),
    ];
    transaction.query(APPLY, &values).await.map(|_| ())
}

fn smallint(count: u32) -> i16 {
    i16::try_from(count).unwrap_or(i16::MAX)
}
