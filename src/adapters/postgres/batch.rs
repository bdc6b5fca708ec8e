//! The rows of an open batch, as exclusions and resolutions judge them.
use ports::outbox::RowId;
use ports::partitions::Token;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::Answer;
use crate::session::Transaction;
use crate::value::get;
use crate::waiting::{Move, code};

/// A row of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: RowId,
    pub(crate) key: Uuid,
    pub(crate) attempts: i32,
    pub(crate) deaths: i16,
    pub(crate) trial_deaths: i16,
    /// Whether it waited before it was claimed, and its key behind it.
    pub(crate) head: bool,
}

impl Row {
    /// As it stands; for what becomes of it to be written over.
    pub(crate) fn stays(&self) -> Move {
        Move {
            id: self.id,
            key: self.key,
            status: code::IN_FLIGHT,
            due_in: None,
            attempts: self.attempts,
            deaths: self.deaths,
            trial_deaths: self.trial_deaths,
            failure_type: None,
            reason: None,
        }
    }
}

const BATCH: &str = "SELECT q.id, q.key, q.attempts, q.deaths, q.trial_deaths, EXISTS (SELECT FROM outbox_waiting w
       WHERE w.partition = q.partition AND w.key = q.key AND w.id = q.id AND w.blocks)
     FROM outbox_lease l JOIN outbox q ON q.partition = l.partition AND q.id BETWEEN l.first_id AND l.last_id
     WHERE l.partition = $1 AND q.status = 1 AND q.lease_version = $2 ORDER BY q.id";

/// What is left of the open batch, in id order.
pub(crate) async fn read(transaction: &Transaction, partition: u32, token: Token) -> Answer<Vec<Row>> {
    let rows = transaction.query(BATCH, &[(&(partition as i32), Type::INT4), (&(token as i64), Type::INT8)]).await?;
    let read = |row| {
        Ok(Row {
            id: get(row, 0)?,
            key: get(row, 1)?,
            attempts: get(row, 2)?,
            deaths: get(row, 3)?,
            trial_deaths: get(row, 4)?,
            head: get(row, 5)?,
        })
    };
    rows.iter().map(read).collect()
}
