//! The lease row in the file, as the rules of `outbox` read it.
use std::time::Duration;

use outbox::{InstanceId, Lease, Liveness, OpenClaim, PartitionNo, ProducerSessionId};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;

/// A lease row: the lease, and the first and last id of the rows of its open batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRow {
    pub(crate) lease: Lease,
    pub(crate) first_id: i64,
    pub(crate) last_id: i64,
}

/// Reads a partition's lease; `None` where there is no such partition.
pub(crate) fn read(context: &WriteContext<'_>, partition: PartitionNo) -> CommandResult<Option<LeaseRow>> {
    let mut statement = context.sql.prepare_cached(
        "SELECT owner, epoch, expires_at, counter, in_flight, lane, claim_epoch, died, trial, first_id, last_id, closed
         FROM outbox_lease WHERE partition = ?1",
    )?;
    let row = statement.query_row([partition.0], |row| lease_row(row, context.now.millis()));
    Ok(row.optional()?)
}

fn lease_row(row: &Row<'_>, now: i64) -> rusqlite::Result<LeaseRow> {
    let open_batch = match row.get::<_, Option<i64>>(4)? {
        None => None,
        Some(token) => Some(OpenClaim {
            token: token as u64,
            session: ProducerSessionId(row.get::<_, Option<String>>(5)?.unwrap_or_default().into()),
            epoch: row.get::<_, Option<i64>>(6)?.unwrap_or_default() as u64,
            claimer_died: row.get(7)?,
            trial: row.get(8)?,
        }),
    };
    let expires_at = row.get::<_, Option<i64>>(2)?.unwrap_or_default();
    let remaining = Duration::from_millis(u64::try_from(expires_at.saturating_sub(now)).unwrap_or(0));
    let lease = Lease {
        owner: row.get::<_, Option<String>>(0)?.map(|owner| InstanceId(owner.into())),
        epoch: row.get::<_, i64>(1)? as u64,
        counter: row.get::<_, i64>(3)? as u64,
        remaining,
        open_batch,
        closed: row.get::<_, Option<i64>>(11)?.map(|token| token as u64),
    };
    let first_id = row.get::<_, Option<i64>>(9)?.unwrap_or_default();
    let last_id = row.get::<_, Option<i64>>(10)?.unwrap_or(i64::MAX);
    Ok(LeaseRow { lease, first_id, last_id })
}

/// Determines from its heartbeat row whether an instance is alive.
pub(crate) fn liveness(context: &WriteContext<'_>, instance: &InstanceId) -> CommandResult<Liveness> {
    let mut statement =
        context.sql.prepare_cached("SELECT seen_at + dead_after_ms > ?2 FROM relay_instance WHERE instance = ?1")?;
    let values = params![&*instance.0, context.now.millis()];
    let alive: Option<bool> = statement.query_row(values, |row| row.get(0)).optional()?;
    Ok(match alive {
        Some(true) => Liveness::Alive,
        Some(false) => Liveness::Dead,
        None => Liveness::Unknown,
    })
}

/// Closes the open batch and increments the counter; returns the new counter.
pub(crate) fn close(context: &WriteContext<'_>, partition: PartitionNo, lease: &Lease) -> CommandResult<u64> {
    let mut statement = context.sql.prepare_cached(
        "UPDATE outbox_lease SET counter = counter + 1, in_flight = NULL, lane = NULL, claim_epoch = NULL, died = 0, trial = 0,
           first_id = NULL, last_id = NULL, claimed_at = NULL, closed = in_flight WHERE partition = ?1",
    )?;
    statement.execute([partition.0])?;
    Ok(lease.counter + 1)
}

/// Increments the partition's counter, so that claims and exclusions under the former one are fenced. Returns the new counter.
pub(crate) fn increment_counter(context: &WriteContext<'_>, partition: u32) -> CommandResult<u64> {
    let mut statement = context
        .sql
        .prepare_cached("UPDATE outbox_lease SET counter = counter + 1 WHERE partition = ?1 RETURNING counter")?;
    Ok(statement.query_row([partition], |row| row.get::<_, i64>(0))? as u64)
}
