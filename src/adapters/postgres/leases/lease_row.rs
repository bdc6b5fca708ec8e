//! Loading, locking and updating a partition's row in `outbox_lease`. The rules about it are [`outbox::Lease`]'s.
use std::time::Duration;

use outbox::{Counter, InstanceId, Lease, Liveness, OpenClaim, PartitionNo, ProducerSessionId, RowId, Token};
use tokio::sync::SemaphorePermit;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::session::{PooledSession, Transaction};
use crate::connection::sql_value::{SqlValue, get};
use crate::connection::statement_error::{StatementError, StatementResult, broken};
use crate::store::context::StoreContext;

macro_rules! select {
    () => {
        "SELECT owner, epoch, greatest(coalesce(extract(epoch FROM expires_at - clock_timestamp()), 0), 0)::float8, counter, in_flight,
           lane, claim_epoch, died, trial, closed FROM outbox_lease WHERE partition = $1"
    };
}

/// The assignments that close the open batch of the `outbox_lease` row with the alias `lease`.
macro_rules! close_open_batch {
    () => {
        "counter = lease.counter + 1, in_flight = NULL, lane = NULL, claim_epoch = NULL, claimer = NULL, claimed_at = NULL, died = false,
           trial = false, first_id = NULL, last_id = NULL, open_ids = NULL, closed = lease.in_flight"
    };
}
pub(crate) use close_open_batch;

const READ: &str = select!();
const LOCK: &str = concat!(select!(), " FOR UPDATE");
const LOCK_SKIP_LOCKED: &str = concat!(select!(), " FOR UPDATE SKIP LOCKED");

/// Reads a partition's lease without locking it.
pub(crate) async fn read(session: &PooledSession, partition: PartitionNo) -> StatementResult<Option<Lease>> {
    let rows = session.query(READ, &[(&(partition.0 as i32), Type::INT4)]).await?;
    rows.first().map(lease).transpose()
}

/// Begins a transaction that has locked a partition's lease: its further statements see everything that was committed before.
pub(crate) async fn lock(
    session: PooledSession,
    partition: PartitionNo,
) -> StatementResult<(Transaction, Option<Lease>)> {
    let (transaction, rows) = session.begin_with(LOCK, &[(&(partition.0 as i32), Type::INT4)]).await?;
    let lease = rows.first().map(lease).transpose()?;
    Ok((transaction, lease))
}

/// As [`lock`], on a connection of the relay, and waits for a row only with a permit: rows that another program keeps locked must not take the
/// connections of the other partitions.
pub(crate) async fn lock_with_permit(
    context: &StoreContext,
    partition: PartitionNo,
) -> StatementResult<(Transaction, Option<Lease>)> {
    lock_after(async { context.lock_wait_permit() }, context, partition).await
}

/// As [`lock_with_permit`], but waits for the permit too: a renewal locks the rows of all leases of this instance, and a stop releases all of them at
/// the same time. Without a connection, a wait delays no other partition.
pub(crate) async fn lock_with_next_permit(
    context: &StoreContext,
    partition: PartitionNo,
) -> StatementResult<(Transaction, Option<Lease>)> {
    lock_after(context.next_lock_wait_permit(), context, partition).await
}

async fn lock_after(
    permit: impl Future<Output = Option<SemaphorePermit<'_>>>,
    context: &StoreContext,
    partition: PartitionNo,
) -> StatementResult<(Transaction, Option<Lease>)> {
    let (transaction, lease) = try_lock_lease(context.relay_session().await?, partition).await?;
    if lease.is_some() {
        return Ok((transaction, lease));
    }
    transaction.rollback().await?;
    let locked = || StatementError::LockTimeout(format!("the lease row of partition {partition} is locked"));
    let _permit = permit.await.ok_or_else(locked)?;
    lock(context.relay_session().await?, partition).await
}

/// As [`lock`], without waiting: no lease if another statement has locked it.
pub(crate) async fn try_lock_lease(
    session: PooledSession,
    partition: PartitionNo,
) -> StatementResult<(Transaction, Option<Lease>)> {
    let (transaction, rows) = session.begin_with(LOCK_SKIP_LOCKED, &[(&(partition.0 as i32), Type::INT4)]).await?;
    let lease = rows.first().map(lease).transpose()?;
    Ok((transaction, lease))
}

/// Adds one to the counter and returns it.
pub(crate) async fn increment_counter(transaction: &Transaction, partition: PartitionNo) -> StatementResult<Counter> {
    let text = "UPDATE outbox_lease SET counter = counter + 1 WHERE partition = $1 RETURNING counter";
    counter(&transaction.query(text, &[(&(partition.0 as i32), Type::INT4)]).await?)
}

/// Takes rows out of the open batch, and adds one to the counter, which becomes the token of the rest. Returns it.
pub(crate) async fn remove_from_batch(
    transaction: &Transaction,
    partition: PartitionNo,
    rows: &[RowId],
) -> StatementResult<Token> {
    let text = "UPDATE outbox_lease SET counter = counter + 1, in_flight = counter + 1,
           open_ids = ARRAY(SELECT id FROM unnest(open_ids) id WHERE id <> ALL ($2))
         WHERE partition = $1 RETURNING counter";
    let values: [SqlValue<'_>; 2] = [(&(partition.0 as i32), Type::INT4), (&rows, Type::INT8_ARRAY)];
    counter(&transaction.query(text, &values).await?)
}

/// Closes the open batch, adds one to the counter and returns it.
pub(crate) async fn close_batch(transaction: &Transaction, partition: PartitionNo) -> StatementResult<Counter> {
    let text = concat!(
        "UPDATE outbox_lease lease SET ",
        close_open_batch!(),
        " WHERE lease.partition = $1 RETURNING lease.counter"
    );
    counter(&transaction.query(text, &[(&(partition.0 as i32), Type::INT4)]).await?)
}

/// The state of an instance by its heartbeat row.
pub(crate) async fn liveness(transaction: &Transaction, instance: &InstanceId) -> StatementResult<Liveness> {
    let text = "SELECT seen_at + dead_after > clock_timestamp() FROM relay_instance WHERE instance = $1";
    let rows = transaction.query(text, &[(&&*instance.0, Type::TEXT)]).await?;
    Ok(match rows.first().map(|row| get(row, 0)).transpose()? {
        Some(true) => Liveness::Alive,
        Some(false) => Liveness::Dead,
        None => Liveness::Unknown,
    })
}

fn counter(rows: &[Row]) -> StatementResult<Counter> {
    let row = rows.first().ok_or_else(|| broken("the locked lease row is missing"))?;
    Ok(get::<i64>(row, 0)? as u64)
}

fn lease(row: &Row) -> StatementResult<Lease> {
    let open_batch = match get::<Option<i64>>(row, 4)? {
        None => None,
        Some(token) => Some(OpenClaim {
            token: token as u64,
            session: ProducerSessionId(get::<Option<&str>>(row, 5)?.unwrap_or_default().into()),
            epoch: get::<Option<i64>>(row, 6)?.unwrap_or_default() as u64,
            claimer_died: get(row, 7)?,
            trial: get(row, 8)?,
        }),
    };
    Ok(Lease {
        owner: get::<Option<&str>>(row, 0)?.map(|owner| InstanceId(owner.into())),
        epoch: get::<i64>(row, 1)? as u64,
        remaining: Duration::try_from_secs_f64(get(row, 2)?).unwrap_or_default(),
        counter: get::<i64>(row, 3)? as u64,
        open_batch,
        closed: get::<Option<i64>>(row, 9)?.map(|token| token as u64),
    })
}
