//! Acquiring and releasing a partition: the statements around the decisions of [`outbox::Lease`].
use std::time::Duration;

use outbox::{
    AcquireDecision, AcquireReason, Epoch, InstanceId, Lease, LeaseFence, Liveness, PartitionNo, ReleaseOutcome, Token,
};
use ports::Error;
use ports::partitions::{AcquiredLease, Acquisition, OpenBatch};
use tokio_postgres::types::Type;

use crate::connection::server_timeline::is_accepted;
use crate::connection::session::Transaction;
use crate::connection::sql_value::{SqlValue, get, seconds};
use crate::connection::statement_error::{StatementError, StatementResult};
use crate::leases::{lease_row, timeline};
use crate::outbox::open_batch;
use crate::store::context::StoreContext;

macro_rules! take {
    () => {
        "UPDATE outbox_lease SET owner = $2, epoch = $3, counter = $4, died = $5,
       expires_at = clock_timestamp() + make_interval(secs => $6) WHERE partition = $1 RETURNING "
    };
}

/// Acquires the lease. Returns whether it may be used: no other timeline waits for its acceptance.
const TAKE: &str = concat!(take!(), is_accepted!());
/// The same on a server that does not show its timeline.
const TAKE_ON_ANY_TIMELINE: &str = concat!(take!(), "true");

/// Clears the deaths of every row outside the open batch.
const CLEAR_DEATHS: &str = "WITH cleared AS (UPDATE outbox SET deaths = 0, trial_deaths = 0
       WHERE partition = $1 AND deaths > 0
         AND id <> ALL (coalesce((SELECT open_ids FROM outbox_lease WHERE partition = $1), '{}')) RETURNING key, id)
     UPDATE outbox_waiting w SET suspect = false FROM cleared c WHERE w.partition = $1 AND w.key = c.key AND w.id = c.id";

/// `expires_at` becomes the time of the release, so that a survey shows since when the partition is free.
const RELEASE: &str = "UPDATE outbox_lease SET owner = NULL, expires_at = clock_timestamp() WHERE partition = $1";

/// The arguments of an acquisition.
pub(crate) struct AcquireRequest {
    pub(crate) partition: PartitionNo,
    pub(crate) owner: InstanceId,
    pub(crate) reason: AcquireReason,
    pub(crate) watermark: Option<Token>,
    pub(crate) ttl: Duration,
}

/// Acquires a partition, unless another instance holds it.
pub(crate) async fn acquire(context: &StoreContext, request: &AcquireRequest) -> StatementResult<Acquisition> {
    let AcquireRequest { partition, owner, reason, watermark, ttl } = request;
    let (transaction, lease) = match lock(context, request).await? {
        Ok(locked) => locked,
        Err(held) => return Ok(held),
    };
    let liveness = match &lease.owner {
        Some(owner) => lease_row::liveness(&transaction, owner).await?,
        None => Liveness::Unknown,
    };
    let (epoch, counter, claimer_died, clears_deaths) = match lease.acquire(owner, *reason, liveness, *watermark) {
        AcquireDecision::Held { by, remaining } => {
            transaction.rollback().await?;
            return Ok(Acquisition::Held { by, remaining });
        }
        AcquireDecision::Acquired { epoch, counter, claimer_died, clears_deaths } => {
            (epoch, counter, claimer_died, clears_deaths)
        }
    };
    let number = partition.0 as i32;
    if lease.open_batch.is_some() {
        open_batch::convert(&transaction, *partition).await?;
    }
    if clears_deaths {
        transaction.query(CLEAR_DEATHS, &[(&number, Type::INT4)]).await?;
    }
    let values: [SqlValue<'_>; 6] = [
        (&number, Type::INT4),
        (&&*owner.0, Type::TEXT),
        (&(epoch as i64), Type::INT8),
        (&(counter as i64), Type::INT8),
        (&claimer_died, Type::BOOL),
        (&seconds(*ttl), Type::FLOAT8),
    ];
    let take = if context.reads_timeline { TAKE } else { TAKE_ON_ANY_TIMELINE };
    let rows = transaction.query(take, &values).await?;
    if rows.first().map(|row| get(row, 0)).transpose()?.flatten() != Some(true) {
        transaction.rollback().await?;
        let change = timeline::unaccepted_change(context).await?;
        let accepted = || Error::Unreachable("the store's timeline was accepted during the acquisition".into());
        return change.map(Acquisition::TimelineChanged).ok_or_else(|| StatementError::Port(accepted()));
    }
    transaction.commit().await?;
    let open_batch = lease.open_batch.map(|open| OpenBatch { token: open.token, session: open.session, claimer_died });
    let fence = LeaseFence { partition: *partition, owner: owner.clone(), epoch, counter };
    Ok(Acquisition::Acquired(AcquiredLease { fence, open_batch }))
}

/// Locks the lease row. For a partition without an owner it skips a row that another instance has locked, because that instance owns the partition or
/// is acquiring it: instances that acquire the same free partitions do not wait for each other. A row that this instance owned before is locked by a
/// statement of its own or of its former process, so it waits for that lock.
async fn lock(
    context: &StoreContext,
    request: &AcquireRequest,
) -> StatementResult<Result<(Transaction, Lease), Acquisition>> {
    let AcquireRequest { partition, owner, reason, .. } = request;
    if *reason == AcquireReason::Unowned {
        let (transaction, lease) = lease_row::try_lock_lease(context.relay_session().await?, *partition).await?;
        if let Some(lease) = lease {
            return Ok(Ok((transaction, lease)));
        }
        transaction.rollback().await?;
        let lease = lease_row::read(&context.relay_session().await?, *partition).await?;
        if let Some(lease) = lease.filter(|lease| lease.owner.as_ref() != Some(owner)) {
            let by = lease.owner.unwrap_or_else(|| InstanceId("another instance".into()));
            return Ok(Err(Acquisition::Held { by, remaining: lease.remaining }));
        }
    }
    let (transaction, lease) = lease_row::lock_with_permit(context, *partition).await?;
    let Some(lease) = lease else {
        transaction.rollback().await?;
        return Err(StatementError::Port(Error::Rejected(format!("there is no partition {partition}"))));
    };
    Ok(Ok((transaction, lease)))
}

/// Releases a partition, unless a batch is in flight.
pub(crate) async fn release(
    context: &StoreContext,
    partition: PartitionNo,
    owner: &InstanceId,
    epoch: Epoch,
) -> StatementResult<ReleaseOutcome> {
    let (transaction, lease) = lease_row::lock_with_next_permit(context, partition).await?;
    let release = lease.map_or(ReleaseOutcome::NotHeld, |lease| lease.release(owner, epoch));
    if release == ReleaseOutcome::Done {
        transaction.query(RELEASE, &[(&(partition.0 as i32), Type::INT4)]).await?;
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(release)
}
