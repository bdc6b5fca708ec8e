//! Who may move which partition's rows. Leases are measured by the store's clock alone.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;

use crate::error::Error;

/// A fixed share of keys; the unit of ownership and of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionNo(pub u32);

impl fmt::Display for PartitionNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The stable name of one running service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub Arc<str>);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The transactional id of one session of one lane: claims made under it die with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProducerSessionId(pub Arc<str>);

impl fmt::Display for ProducerSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Grows with each acquisition of a partition.
pub type Epoch = u64;
/// Grows with each statement that changes a partition's rows.
pub type Counter = u64;
/// The counter value a claim took: its name, never used again.
pub type Token = u64;

/// What a statement must name to change a partition's rows; with anything out of date it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Which partition.
    pub partition: PartitionNo,
    /// Who claims to own it.
    pub owner: InstanceId,
    /// Since which acquisition.
    pub epoch: Epoch,
    /// The counter the caller knows.
    pub counter: Counter,
}

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

/// Why the caller takes a partition (again).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireReason {
    /// It is free, expired, its owner is dead, or it was ours before this process began. An open batch's claimer has died.
    Vacant,
    /// We hold it, and our own worker died with what it had in hand (a panic, a kill).
    WorkerDied,
    /// We hold it and live, but no longer know what an unanswered statement did, or lost our lane.
    Uncertain,
}

/// What a store knows of the one in a lease row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Its heartbeat is young.
    Alive,
    /// Its heartbeat is old.
    Dead,
    /// Never heard, or it has left, or not since the store was opened.
    Unknown,
}

impl AcquireReason {
    /// Whether the owner in the lease row is dead, as far as the taker's reason and the heartbeat tell. Every store judges so.
    pub fn owner_died(self, owner: Option<&str>, taker: &InstanceId, heart: Liveness) -> bool {
        match (owner, self) {
            (None, _) => false,
            // Under our own name and vacant: it was the process before this one.
            (Some(owner), AcquireReason::Vacant | AcquireReason::WorkerDied) if owner == &*taker.0 => true,
            (Some(owner), AcquireReason::Uncertain) if owner == &*taker.0 => false,
            (Some(_), _) => heart != Liveness::Alive,
        }
    }
}

/// What became of giving a partition back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It is free at once.
    Done,
    /// Refused: a batch is in flight. Settle or resolve it first.
    InFlight,
    /// It was not ours any more.
    NotOurs,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_dead_depends_on_the_reason_and_on_the_heartbeat() {
        let me = InstanceId("me".into());
        let cases = [
            ("me", AcquireReason::Vacant, Liveness::Alive, true),
            ("me", AcquireReason::WorkerDied, Liveness::Alive, true),
            ("me", AcquireReason::Uncertain, Liveness::Unknown, false),
            ("other", AcquireReason::Vacant, Liveness::Alive, false),
            ("other", AcquireReason::Vacant, Liveness::Dead, true),
            ("other", AcquireReason::Vacant, Liveness::Unknown, true),
            ("other", AcquireReason::WorkerDied, Liveness::Alive, false),
        ];

        for (owner, because, heart, died) in cases {
            assert_eq!(because.owner_died(Some(owner), &me, heart), died, "{owner} {because:?} {heart:?}");
        }
    }
}
