//! The rows that are left in an open batch. The lease row names them; their own columns are those of before the claim.
use outbox::{OutboxRow, PartitionNo, Token};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::Transaction;
use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;

/// Selects the ctids of the rows that the locked lease rows `open_batch` name: one walk over the span of each batch, with a look-up in a hash
/// table of all their ids. IS TRUE keeps the planner from joining the ids, which it expects to be few; OFFSET 0 keeps it from joining the rows with
/// the leases in another order, for which it would read the whole index if the table was empty when it was last analysed.
macro_rules! open_row_ctids {
    () => {
        "SELECT queued.row_ctid FROM open_batch CROSS JOIN LATERAL (SELECT queued.ctid AS row_ctid FROM outbox queued
           WHERE queued.partition = open_batch.partition AND queued.id BETWEEN open_batch.first_id AND open_batch.last_id
             AND (queued.id IN (SELECT unnest(batch.open_ids) FROM open_batch batch)) IS TRUE OFFSET 0) queued"
    };
}
pub(crate) use open_row_ctids;

/// Looks the rows up one by one: with the statistics of an empty table the planner would walk all rows of the partition.
const BATCH: &str = "SELECT queued.id, queued.key, queued.attempts + 1, queued.deaths, queued.trial_deaths,
       EXISTS (SELECT FROM outbox_waiting waiting
         WHERE waiting.partition = $1 AND waiting.key = queued.key AND waiting.id = queued.id AND waiting.blocks)
     FROM outbox_lease lease CROSS JOIN LATERAL unnest(lease.open_ids) open (id) CROSS JOIN LATERAL
       (SELECT queued.id, queued.key, queued.attempts, queued.deaths, queued.trial_deaths FROM outbox queued
        WHERE queued.partition = lease.partition AND queued.id = open.id OFFSET 0) queued
     WHERE lease.partition = $1 AND lease.in_flight = $2 ORDER BY queued.id";

/// Converts a batch whose rows an earlier version has marked: status 1, with the attempt counted.
const CONVERT: &str = "WITH open_batch AS MATERIALIZED (SELECT in_flight, first_id, last_id FROM outbox_lease
       WHERE partition = $1 AND in_flight IS NOT NULL AND open_ids IS NULL),
     converted AS (UPDATE outbox queued SET attempts = queued.attempts - 1, (status, next_attempt_at) =
           (SELECT CASE count(*) WHEN 0 THEN 0 ELSE 2 END, max(waiting.due) FROM outbox_waiting waiting
            WHERE waiting.partition = $1 AND waiting.key = queued.key AND waiting.id = queued.id)
       FROM open_batch WHERE queued.partition = $1 AND queued.id BETWEEN open_batch.first_id AND open_batch.last_id
         AND queued.status = 1 AND queued.lease_version = open_batch.in_flight
       RETURNING queued.id, queued.lease_owner),
     summary AS (SELECT coalesce(array_agg(id), '{}') AS ids, max(lease_owner) AS claimer FROM converted)
     UPDATE outbox_lease lease SET open_ids = summary.ids, claimer = summary.claimer FROM open_batch, summary WHERE lease.partition = $1";

/// The rows of the open batch, in id order, with the attempt that its claim counted.
pub(crate) async fn read(
    transaction: &Transaction,
    partition: PartitionNo,
    token: Token,
) -> StatementResult<Vec<OutboxRow<Uuid>>> {
    let values = [(&(partition.0 as i32) as _, Type::INT4), (&(token as i64) as _, Type::INT8)];
    let rows = transaction.query(BATCH, &values).await?;
    let read = |row| {
        Ok(OutboxRow {
            id: get(row, 0)?,
            key: get(row, 1)?,
            attempts: get::<i32>(row, 2)?.unsigned_abs(),
            deaths: get::<i16>(row, 3)?.unsigned_abs().into(),
            trial_deaths: get::<i16>(row, 4)?.unsigned_abs().into(),
            blocks_key: get(row, 5)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Moves the rows of an open batch that an earlier version claimed to the lease row, which the transaction has locked. Changes nothing if
/// the lease row names them already.
pub(crate) async fn convert(transaction: &Transaction, partition: PartitionNo) -> StatementResult<()> {
    transaction.query(CONVERT, &[(&(partition.0 as i32), Type::INT4)]).await.map(|_| ())
}
