//! Loading the rows that are left in an open batch.
use outbox::{OutboxRow, PartitionNo, Token};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::Transaction;
use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;

const BATCH: &str = "SELECT q.id, q.key, q.attempts, q.deaths, q.trial_deaths, EXISTS (SELECT FROM outbox_waiting w
       WHERE w.partition = q.partition AND w.key = q.key AND w.id = q.id AND w.blocks)
     FROM outbox_lease l JOIN outbox q ON q.partition = l.partition AND q.id BETWEEN l.first_id AND l.last_id
     WHERE l.partition = $1 AND q.status = 1 AND q.lease_version = $2 ORDER BY q.id";

/// The rows of the open batch, in id order.
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
