//! The locks of a round that settles and claims: all lease rows in the order of their numbers, before its other statements. A renewal locks
//! many rows in this order, too; a round that locked some rows for its settlements and then others for its claims could wait for it while it
//! waits for the round.
use std::collections::{BTreeMap, HashSet};

use outbox::LeaseFence;
use tokio_postgres::types::Type;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{SqlValue, get};
use crate::connection::statement_error::StatementResult;

const LOCK: &str = "SELECT t.partition FROM unnest($1::int4[], $2::text[], $3::int8[]) v (partition, owner, epoch)
       JOIN outbox_lease t ON t.partition = v.partition AND t.owner = v.owner AND t.epoch = v.epoch
     ORDER BY t.partition FOR UPDATE OF t";

const UNLOCKED: &str = "SELECT partition FROM outbox_lease WHERE partition = ANY ($1) FOR UPDATE SKIP LOCKED";

/// The partitions of these whose lease rows no other transaction has locked at the moment.
pub(crate) async fn unlocked_of(session: &PooledSession, partitions: &[i32]) -> StatementResult<HashSet<u32>> {
    let rows = session.query(UNLOCKED, &[(&partitions, Type::INT4_ARRAY)]).await?;
    rows.iter().map(|row| Ok(get::<i32>(row, 0)?.unsigned_abs())).collect()
}

/// The lease rows of a round as columns.
pub(crate) struct LeaseLocks<'a> {
    partitions: Vec<i32>,
    owners: Vec<&'a str>,
    epochs: Vec<i64>,
}

impl<'a> LeaseLocks<'a> {
    /// The lease rows of these fences, each once.
    pub(crate) fn new(fences: impl Iterator<Item = &'a LeaseFence>) -> Self {
        let fences: BTreeMap<u32, &LeaseFence> = fences.map(|fence| (fence.partition.0, fence)).collect();
        Self {
            partitions: fences.keys().map(|partition| *partition as i32).collect(),
            owners: fences.values().map(|fence| &*fence.owner.0).collect(),
            epochs: fences.values().map(|fence| fence.epoch as i64).collect(),
        }
    }

    /// The statement and its parameters.
    pub(crate) fn statement(&self) -> (&'static str, Vec<SqlValue<'_>>) {
        let values: Vec<SqlValue<'_>> = vec![
            (&self.partitions, Type::INT4_ARRAY),
            (&self.owners, Type::TEXT_ARRAY),
            (&self.epochs, Type::INT8_ARRAY),
        ];
        (LOCK, values)
    }
}
