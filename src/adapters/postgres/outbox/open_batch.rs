//! The rows that are left in an open batch. The lease row names them; their own columns are those of before the claim.
use outbox::{OutboxRow, PartitionNo, Token};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::Transaction;
use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;

/// Selects the positions of the rows that the locked lease rows `l` name: one walk over the span of each batch, with a look-up in a hash table of
/// all their ids. IS TRUE keeps the planner from joining the ids, which it expects to be few; OFFSET 0 keeps it from joining the rows with the
/// leases in another order, for which it would read the whole index if the table was empty when it was last analysed.
macro_rules! open_row_ctids {
    () => {
        "SELECT q.place FROM l CROSS JOIN LATERAL (SELECT q.ctid AS place FROM outbox q
           WHERE q.partition = l.partition AND q.id BETWEEN l.first_id AND l.last_id
             AND (q.id IN (SELECT unnest(b.open_ids) FROM l b)) IS TRUE OFFSET 0) q"
    };
}
pub(crate) use open_row_ctids;

/// Looks the rows up one by one: with the statistics of an empty table the planner would walk all rows of the partition.
const BATCH: &str = "SELECT q.id, q.key, q.attempts + 1, q.deaths, q.trial_deaths, EXISTS (SELECT FROM outbox_waiting w
       WHERE w.partition = $1 AND w.key = q.key AND w.id = q.id AND w.blocks)
     FROM outbox_lease l CROSS JOIN LATERAL unnest(l.open_ids) i (id) CROSS JOIN LATERAL
       (SELECT q.id, q.key, q.attempts, q.deaths, q.trial_deaths FROM outbox q WHERE q.partition = l.partition AND q.id = i.id OFFSET 0) q
     WHERE l.partition = $1 AND l.in_flight = $2 ORDER BY q.id";

/// Converts a batch whose rows an earlier version has marked: status 1, with the attempt counted.
const CONVERT: &str = "WITH l AS MATERIALIZED (SELECT in_flight, first_id, last_id FROM outbox_lease
       WHERE partition = $1 AND in_flight IS NOT NULL AND open_ids IS NULL),
     r AS (UPDATE outbox o SET attempts = o.attempts - 1, (status, next_attempt_at) =
           (SELECT CASE count(*) WHEN 0 THEN 0 ELSE 2 END, max(w.due) FROM outbox_waiting w
            WHERE w.partition = $1 AND w.key = o.key AND w.id = o.id)
       FROM l WHERE o.partition = $1 AND o.id BETWEEN l.first_id AND l.last_id AND o.status = 1 AND o.lease_version = l.in_flight
       RETURNING o.id, o.lease_owner),
     n AS (SELECT coalesce(array_agg(id), '{}') AS ids, max(lease_owner) AS claimer FROM r)
     UPDATE outbox_lease t SET open_ids = n.ids, claimer = n.claimer FROM l, n WHERE t.partition = $1";

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
