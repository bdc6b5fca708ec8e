//! CountedLeases: the leases of the reference store, with the calls of each second counted.
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use kit::clock::TestClock;
use kit::reference::Reference;
use parking_lot::Mutex;
use ports::Error;
use ports::clock::Clock;
use ports::partitions::{
    AcquireReason, Acquisition, Epoch, InstanceId, InstanceRank, LeaseSurvey, PartitionLeases, PartitionNo,
    PartitionView, ReleaseOutcome, Renewal, Token,
};

/// Calls of the port, by their results.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallCounts {
    pub heartbeats: u64,
    pub renewals: u64,
    pub surveys: u64,
    pub taken: u64,
    /// Acquisitions of a partition that another instance held.
    pub refused: u64,
    pub releases: u64,
    pub leaves: u64,
}

impl CallCounts {
    /// The statements that the PostgreSQL adapter sends for these calls: an acquisition locks the lease, reads the owner's heartbeat, clears
    /// deaths, writes and commits; a refused one rolls back after the second; a release locks, writes and commits.
    pub fn statements(&self) -> u64 {
        let Self { heartbeats, renewals, surveys, taken, refused, releases, leaves } = *self;
        heartbeats + renewals + surveys + 5 * taken + 3 * refused + 3 * releases + leaves
    }

    fn add(&mut self, other: &Self) {
        self.heartbeats += other.heartbeats;
        self.renewals += other.renewals;
        self.surveys += other.surveys;
        self.taken += other.taken;
        self.refused += other.refused;
        self.releases += other.releases;
        self.leaves += other.leaves;
    }
}

/// The leases of a reference store.
pub struct CountedLeases {
    store: Reference,
    clock: TestClock,
    seconds: Mutex<BTreeMap<i64, CallCounts>>,
}

impl CountedLeases {
    /// The leases of an empty store.
    pub fn new(clock: TestClock, partitions: u32) -> Self {
        Self { store: Reference::partitioned(clock.clone(), partitions), clock, seconds: Mutex::default() }
    }

    /// The calls of each second since the last call of this function.
    pub fn take_seconds(&self) -> Vec<CallCounts> {
        std::mem::take(&mut *self.seconds.lock()).into_values().collect()
    }

    fn count(&self, change: impl FnOnce(&mut CallCounts)) {
        change(self.seconds.lock().entry(self.clock.now().millis() / 1_000).or_default());
    }
}

/// The sum of these counts.
pub fn total(seconds: &[CallCounts]) -> CallCounts {
    let mut total = CallCounts::default();
    seconds.iter().for_each(|second| total.add(second));
    total
}

#[async_trait]
impl PartitionLeases for CountedLeases {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        self.count(|counts| counts.heartbeats += 1);
        self.store.heartbeat(instance, dead_after).await
    }
    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        self.count(|counts| counts.surveys += 1);
        self.store.survey(instance).await
    }
    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        self.count(|counts| counts.leaves += 1);
        self.store.leave(instance).await
    }
    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let acquisition = self.store.acquire(partition, owner, reason, watermark, ttl).await?;
        self.count(|counts| match acquisition {
            Acquisition::Acquired(_) => counts.taken += 1,
            Acquisition::Held { .. } | Acquisition::TimelineChanged(_) => counts.refused += 1,
        });
        Ok(acquisition)
    }
    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        self.count(|counts| counts.renewals += 1);
        self.store.renew(owner, held, ttl).await
    }
    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        self.count(|counts| counts.releases += 1);
        self.store.release(partition, owner, epoch).await
    }
    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        self.store.overview().await
    }
}
