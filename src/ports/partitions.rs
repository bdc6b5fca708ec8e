//! Partition leases and cluster membership. Only the store's clock measures leases.
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;

use crate::error::Error;

pub mod wake;

pub use ::outbox::{
    AcquireReason, Counter, Epoch, InstanceId, LeaseFence, Liveness, PartitionNo, ProducerSessionId, ReleaseOutcome,
    Token,
};

/// Another process has taken over the instance id of this one: the store refuses this process's writes from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceIdTakenOver {
    /// Id that this process held, its `instance.id`.
    pub instance: String,
    /// Process that holds it now, as far as known, or installation that replaced the one of this process.
    pub by: String,
}

/// An acquired partition lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquiredLease {
    /// Identifies the lease in every later statement.
    pub fence: LeaseFence,
    /// Batch that the former owner left open; the new owner resolves it before any claim.
    pub open_batch: Option<OpenBatch>,
}

/// A claimed batch without a recorded outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBatch {
    /// Fencing token of the batch: of its claim, or of its last exclusion.
    pub token: Token,
    /// Producer session under which the batch may have been published.
    pub session: ProducerSessionId,
    /// Whether the claimer died with the batch open, instead of releasing it or losing its lease while alive.
    pub claimer_died: bool,
}

/// Result of an attempt to acquire a partition lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquisition {
    /// The caller holds the lease, under a new epoch.
    Acquired(AcquiredLease),
    /// A live instance holds the lease.
    Held {
        /// Instance that holds it.
        by: InstanceId,
        /// Time until it expires unless it is renewed.
        remaining: Duration,
    },
    /// The store is on another timeline than the one for which the producer sessions were fenced. Nothing is acquired: fence all of
    /// them, then call [`PartitionLeases::accept_timeline`].
    TimelineChanged(TimelineChange),
}

/// The store may have been rewound: a fail-over to a standby, or a restore, began another timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineChange {
    /// Identifies the timeline that the store is on now.
    pub timeline: String,
    /// Every commit up to this time is in the store; `None` where the server does not show it.
    pub complete_until: Option<Timestamp>,
}

/// Result of accepting a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineAcceptance {
    /// Done; the broker was ahead of the store in this many partitions.
    Accepted {
        /// Partitions with a committed batch that the store does not have.
        partitions_behind: u32,
    },
    /// Another instance has accepted it, or the timeline has changed once more: acquire again.
    AlreadyDone,
}

/// A partition's lease and depth, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Number of the outbox partition.
    pub partition: PartitionNo,
    /// Instance that holds the lease.
    pub owner: Option<InstanceId>,
    /// Number of the latest acquisition.
    pub epoch: Epoch,
    /// Counter of the lease row; each statement that changes rows of the partition increments it.
    pub counter: Counter,
    /// Fencing token of the open batch.
    pub open_batch: Option<Token>,
    /// Time at which the lease expires, by the store's clock.
    pub expires_at: Option<Timestamp>,
    /// Number of rows that are not SENT.
    pub depth: u64,
}

/// Rank of an instance among the live ones, in the order of their ids. The ranks of all instances of a store are consistent: each is alive by
/// its own `dead_after` and the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceRank {
    /// Number of live instances whose ids come before this one's.
    pub rank: u32,
    /// Number of live instances, this one included.
    pub live: u32,
}

/// A live instance and how many leases it holds that have not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceLoad {
    /// Id of the instance.
    pub instance: InstanceId,
    /// Number of its leases.
    pub held: u32,
}

/// Leases and live instances at one moment, as far as an instance needs them to choose partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSurvey {
    /// The live instances in the order of their ids.
    pub members: Vec<InstanceLoad>,
    /// Partitions that the calling instance holds under a lease that has not expired, in numeric order.
    pub own: Vec<PartitionNo>,
    /// Partitions that any instance may acquire, the one that has been free for the longest time first: without an owner, with an expired
    /// lease, or of a dead owner.
    pub free: Vec<FreePartition>,
}

/// A partition that any instance may acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreePartition {
    /// Number of the partition.
    pub partition: PartitionNo,
    /// Time since its release, the end of its lease, or the moment from which its owner counts as dead. Longer than any of these for a
    /// partition that has had no owner yet.
    pub idle: Duration,
}

/// Which leases a renewal extended. A lease that it does not contain is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Partitions whose leases last for the requested time.
    pub renewed: Vec<PartitionNo>,
    /// Partitions whose leases the caller still holds, until the same time as before: another transaction has locked their rows.
    pub locked: Vec<PartitionNo>,
}

/// Membership and partition leases.
#[async_trait]
pub trait PartitionLeases: Send + Sync {
    /// Records this instance's heartbeat and returns its rank among the live instances. Idempotent. The store keeps `dead_after` with the
    /// heartbeat: an instance is dead by its own `dead_after`, not by the one of the caller. Where the store's clock was set
    /// back, a heartbeat of another instance that lies more than [`HEARTBEAT_AHEAD_MAX`] ahead is set to the present: an instance that died
    /// before that is dead after its `dead_after` again.
    ///
    /// [`HEARTBEAT_AHEAD_MAX`]: outbox::limits::HEARTBEAT_AHEAD_MAX
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error>;

    /// Lists the instances that the store remembers in the order of their names: the live ones, also those without a relay, and the dead ones until
    /// [`INSTANCE_RETENTION_FACTOR`] times their `dead_after` later. For forgetting the sessions of all others; a store that cannot be rewound
    /// needs none of that and lists no member.
    ///
    /// [`INSTANCE_RETENTION_FACTOR`]: outbox::limits::INSTANCE_RETENTION_FACTOR
    async fn members(&self) -> Result<Vec<InstanceId>, Error> {
        Ok(Vec::new())
    }

    /// Reads what an instance below its quota needs to choose partitions. It reads every lease, so it is not for each heartbeat.
    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error>;

    /// Removes this instance at once, instead of after `dead_after`. It must have released its partitions before.
    async fn leave(&self, instance: &InstanceId) -> Result<(), Error>;

    /// Acquires a partition for `ttl`, with epoch + 1 and a counter above every watermark ever written (`watermark` is the broker's).
    /// An open batch, its token and its session stay in the lease row until the batch is resolved, so that a later owner can resolve it
    /// when this one dies. With [`AcquireReason::Unowned`] and a dead former owner, rows outside the open batch have their deaths cleared.
    ///
    /// # Errors
    /// After [`Error::Unknown`] acquire again: a second acquisition increments the epoch and changes nothing else.
    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error>;

    /// Raises the counters of all partitions above these watermarks, after which the store grants leases again. The watermarks are those
    /// that [`Broker::fence_all`] returned after the change was found. Idempotent: only the first of several instances changes anything. A
    /// store without timelines never reports a change, and has nothing to accept.
    ///
    /// # Errors
    /// After [`Error::Unknown`], or after a call that was dropped, a repetition by the same process returns what the acceptance found, if it was
    /// done.
    ///
    /// [`Broker::fence_all`]: crate::broker::Broker::fence_all
    async fn accept_timeline(
        &self,
        _change: &TimelineChange,
        _watermarks: &BTreeMap<PartitionNo, Token>,
    ) -> Result<TimelineAcceptance, Error> {
        Ok(TimelineAcceptance::AlreadyDone)
    }

    /// Renews the leases that `owner` still holds to `ttl` from now. Leases that are not returned are lost; an expired lease is lost even
    /// when no other instance acquired it. A row that another transaction locks delays no other renewal. Never changes a counter.
    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error>;

    /// Releases a partition that has no batch in flight, so that its next owner need not wait for expiry.
    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error>;

    /// Lists every partition in numeric order, for operators.
    async fn overview(&self) -> Result<Vec<PartitionView>, Error>;
}
