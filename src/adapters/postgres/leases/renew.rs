//! Renewing leases. A row that another program's transaction locks must not delay the renewal of the others.
use std::time::{Duration, Instant};

use outbox::{Epoch, InstanceId, PartitionNo};
use ports::partitions::Renewal;
use tokio_postgres::types::Type;

use crate::connection::session::CommitWait;
use crate::connection::sql_value::{SqlValue, get, seconds};
use crate::connection::statement_error::{StatementError, StatementResult, retry_conflicts};
use crate::store::context::StoreContext;

/// Returns the leases that $1 held at the statement's begin, each with whether it was renewed. Locks the rows in the order of their numbers, as the
/// rounds of claims do, so that none deadlock.
macro_rules! renew {
    ($lock:literal) => {
        concat!(
            "WITH held AS MATERIALIZED (SELECT l.partition FROM unnest($2::int4[], $3::int8[]) AS h (partition, epoch)
       JOIN outbox_lease l ON l.partition = h.partition AND l.epoch = h.epoch
       WHERE l.owner = $1 AND l.expires_at > clock_timestamp() ORDER BY l.partition ",
            $lock,
            "), renewed AS (UPDATE outbox_lease l SET expires_at = clock_timestamp() + make_interval(secs => $4) FROM held
       WHERE l.partition = held.partition AND l.owner = $1 AND l.expires_at > clock_timestamp() RETURNING l.partition)
     SELECT l.partition, r.partition IS NOT NULL FROM unnest($2::int4[], $3::int8[]) AS h (partition, epoch)
       JOIN outbox_lease l ON l.partition = h.partition AND l.epoch = h.epoch LEFT JOIN renewed r ON r.partition = l.partition
       WHERE l.owner = $1 AND (r.partition IS NOT NULL OR l.expires_at > clock_timestamp()) ORDER BY l.partition"
        )
    };
}

/// Skips the rows that another transaction has locked.
const RENEW_UNLOCKED: &str = renew!("FOR UPDATE OF l SKIP LOCKED");
/// Waits for each locked row, at most for the `lock_timeout` of its transaction.
const RENEW: &str = renew!("FOR UPDATE OF l");

/// Renews leases in these steps:
///
/// 1. renew all whose rows are not locked (SKIP LOCKED);
/// 2. wait for the locked rows together: a round of this instance releases its rows soon;
/// 3. on a lock timeout, wait for each of them by itself, so that the transaction of another program delays only its own row;
/// 4. leave the rows that stay locked, or are not reached within the store's `lock_timeout`, for the next renewal.
pub(crate) async fn renew(
    context: &StoreContext,
    owner: &InstanceId,
    held: &[(PartitionNo, Epoch)],
    ttl: Duration,
) -> StatementResult<Renewal> {
    let deadline = Instant::now() + context.options.lock_timeout;
    let mut renewal = retry_conflicts!(try_renew(context, RENEW_UNLOCKED, owner, held, ttl))?;
    let skipped = std::mem::take(&mut renewal.locked);
    let skipped: Vec<_> = held.iter().copied().filter(|(partition, _)| skipped.contains(partition)).collect();
    if !skipped.is_empty() && !wait_for(context, owner, &skipped, ttl, &mut renewal).await? {
        for lease in &skipped {
            let lease = std::slice::from_ref(lease);
            if Instant::now() >= deadline || !wait_for(context, owner, lease, ttl, &mut renewal).await? {
                renewal.locked.extend(lease.iter().map(|(partition, _)| *partition));
            }
        }
    }
    renewal.renewed.sort_unstable();
    Ok(renewal)
}

/// Renews leases once their rows are unlocked; returns false if that took longer than the lock timeout, or on a conflict.
async fn wait_for(
    context: &StoreContext,
    owner: &InstanceId,
    leases: &[(PartitionNo, Epoch)],
    ttl: Duration,
    renewal: &mut Renewal,
) -> StatementResult<bool> {
    match try_renew(context, RENEW, owner, leases, ttl).await {
        Ok(renewed) => renewal.renewed.extend(renewed.renewed),
        Err(StatementError::LockTimeout(_) | StatementError::Conflict(_)) => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(true)
}

async fn try_renew(
    context: &StoreContext,
    text: &str,
    owner: &InstanceId,
    held: &[(PartitionNo, Epoch)],
    ttl: Duration,
) -> StatementResult<Renewal> {
    let partitions: Vec<i32> = held.iter().map(|(partition, _)| partition.0 as i32).collect();
    let epochs: Vec<i64> = held.iter().map(|(_, epoch)| *epoch as i64).collect();
    let (owner, ttl) = (&*owner.0, seconds(ttl));
    let values: Vec<SqlValue<'_>> =
        vec![(&owner, Type::TEXT), (&partitions, Type::INT4_ARRAY), (&epochs, Type::INT8_ARRAY), (&ttl, Type::FLOAT8)];
    // Longer than a round of this instance holds its rows while it waits for another row.
    let lock_timeout = context.options.relay_lock_timeout * 2;
    let session = context.relay_session().await?;
    let results = session.execute_all(lock_timeout, CommitWait::Flush, &[(text, values)]).await?;
    let mut renewal = Renewal::default();
    for row in results.iter().flatten() {
        let partitions = if get(row, 1)? { &mut renewal.renewed } else { &mut renewal.locked };
        partitions.push(PartitionNo(get::<i32>(row, 0)?.unsigned_abs()));
    }
    Ok(renewal)
}
