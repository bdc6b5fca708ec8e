//! Who may move which partition's rows. Leases are measured by the store's clock alone.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;

use crate::error::Error;

pub use ::outbox::{
    AcquireReason, Counter, Epoch, Fence, InstanceId, Liveness, PartitionNo, ProducerSessionId, Release, Token,
};

/// A partition just taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// What further statements name.
    pub fence: Fence,
    /// A batch the former owner left open: resolve it before anything else.
    pub in_flight: Option<OpenBatch>,
}

/// A claimed batch whose outcome nobody wrote down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBatch {
    /// Its token.
    pub token: Token,
    /// The lane under which it went, or may have gone.
    pub session: ProducerSessionId,
    /// Whether the claimer died with it in hand (and did not hand it back or lose its lease alive).
    pub died: bool,
}

/// What became of an attempt to take a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquisition {
    /// It is ours, under a new epoch.
    Taken(Acquired),
    /// Somebody alive holds it.
    Held {
        /// Who.
        by: InstanceId,
        /// For how long at least.
        remaining: Duration,
    },
}

/// A partition as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Which.
    pub partition: PartitionNo,
    /// Who holds it.
    pub owner: Option<InstanceId>,
    /// Its latest acquisition.
    pub epoch: Epoch,
    /// Its counter.
    pub counter: Counter,
    /// Its open batch.
    pub in_flight: Option<Token>,
    /// When the lease runs out.
    pub expires_at: Option<Timestamp>,
    /// Rows that have not left.
    pub depth: u64,
}

/// A running service as its fellows see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub instance: InstanceId,
    /// Whether its heartbeat is younger than `dead_after`.
    pub alive: bool,
    /// Its last heartbeat.
    pub seen_at: Timestamp,
}

/// Membership and partition leases.
#[async_trait]
pub trait PartitionLeases: Send + Sync {
    /// Says that this instance lives, and who else does. Idempotent. The store keeps `dead_after` with the heartbeat: by it, and not by a
    /// taker's own, is judged whether an owner is dead.
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<Vec<MemberView>, Error>;

    /// Leaves at once, instead of after `dead_after`. Partitions must have been released before.
    async fn leave(&self, instance: &InstanceId) -> Result<(), Error>;

    /// Takes a partition for `ttl`, with epoch + 1 and a counter above every watermark ever written (`watermark` is the broker's).
    /// An open batch, its token and its lane stay in the lease row until it is resolved, so that a taker that dies leaves its
    /// successor as wise. With [`AcquireReason::Vacant`] and a dead former owner, rows that were not in the open batch have their deaths cleared.
    ///
    /// # Errors
    /// After [`Error::Unknown`] simply ask again: a second acquisition costs an epoch and nothing else.
    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        because: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error>;

    /// Prolongs the leases that are still ours to `ttl` from now and says which: the others are lost, and so is one that has run out,
    /// although nobody took it. Never touches a counter.
    async fn renew(
        &self,
        owner: &InstanceId,
        held: &[(PartitionNo, Epoch)],
        ttl: Duration,
    ) -> Result<Vec<PartitionNo>, Error>;

    /// Gives a partition back, if nothing of it is in flight. Its next owner starts at once.
    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<Release, Error>;

    /// Every partition, in order.
    async fn overview(&self) -> Result<Vec<PartitionView>, Error>;
}
