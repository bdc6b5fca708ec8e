//! A worker of one partition, and the orders and rows that these tests write.
use std::time::Duration;

use domain::{Order, Status};
use kit::Factory;
use ports::FailureType;
use ports::operators::{OutboxOperators, RowFilter, RowView};
use ports::orders::{CommitOutcome, OrderStore};
use ports::outbox::{
    Claim, ClaimKind, ClaimOutcome, ClaimedBatch, Disposition, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore,
    RowId, Settlement,
};
use ports::partitions::{
    AcquireReason, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};
use redis::RedisStore;

pub const P0: PartitionNo = PartitionNo(0);
pub const HOUR: Duration = Duration::from_secs(3_600);
pub const ALL: u32 = 10_000;

/// Holds a partition's lease and tracks its counter.
pub struct Worker<'s> {
    pub store: &'s RedisStore,
    pub fence: LeaseFence,
}

impl<'s> Worker<'s> {
    /// Acquires a free partition.
    pub async fn acquire(store: &'s RedisStore, name: &str, lease: Duration) -> Self {
        let owner = InstanceId(name.into());
        store.heartbeat(&owner, HOUR).await.unwrap();
        match store.acquire(P0, &owner, AcquireReason::Unowned, None, lease).await.unwrap() {
            Acquisition::Acquired(acquired) => Self { store, fence: acquired.fence },
            held => panic!("{name} could not acquire: {held:?}"),
        }
    }

    pub async fn try_claim(&mut self, limit: u32, kind: ClaimKind) -> ClaimOutcome {
        let session = ProducerSessionId(format!("{}-session", self.fence.owner).into());
        let claim = Claim { fence: self.fence.clone(), session, limit, kind };
        let claimed = self.store.claim(claim).await.unwrap();
        if let ClaimOutcome::Batch(batch) = &claimed {
            self.fence.counter = batch.token;
        }
        claimed
    }

    pub async fn claim(&mut self, limit: u32) -> ClaimedBatch {
        match self.try_claim(limit, ClaimKind::Ordinary).await {
            ClaimOutcome::Batch(batch) => batch,
            other => panic!("nothing was claimed: {other:?}"),
        }
    }

    /// Excludes these rows; the batch continues under its new token.
    pub async fn exclude(&mut self, batch: &mut ClaimedBatch, rows: &[(RowId, Disposition)]) {
        let exclusions: Vec<_> = rows
            .iter()
            .map(|(row, disposition)| Exclusion {
                row: *row,
                attempts: 1,
                disposition: *disposition,
                failure_type: FailureType::Timeout,
                reason: "slow".into(),
            })
            .collect();
        match self.store.exclude(&self.fence, batch.token, &exclusions).await.unwrap() {
            ExclusionOutcome::Done { token, .. } => (batch.token, self.fence.counter) = (token, token),
            ExclusionOutcome::Stale => panic!("the exclusion is stale"),
        }
    }

    pub fn settlement(&self, batch: &ClaimedBatch) -> Settlement {
        Settlement { fence: self.fence.clone(), token: batch.token, positions: [].into(), by_fallback: Vec::new() }
    }

    pub async fn settle(&mut self, batch: &ClaimedBatch) {
        match self.store.settle(self.settlement(batch)).await.unwrap() {
            FencedOutcome::Done { counter, .. } => self.fence.counter = counter,
            FencedOutcome::Stale => panic!("the settlement is stale"),
        }
    }

    /// Claims and settles until nothing is due; returns the ids in the order of the claims.
    pub async fn drain(&mut self) -> Vec<RowId> {
        let mut sent = Vec::new();
        while let ClaimOutcome::Batch(batch) = self.try_claim(ALL, ClaimKind::Ordinary).await {
            sent.extend(batch.rows.iter().map(|row| row.id));
            self.settle(&batch).await;
        }
        sent
    }
}

/// Places an order in partition 0 and changes its status `changes` times: one row each.
pub async fn order_with_changes(store: &RedisStore, factory: &Factory, changes: usize) -> Order {
    let commit = factory.creation("ann", P0);
    let mut order = commit.order.clone();
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Done);
    for _ in 0..changes {
        order = change(store, factory, order).await;
    }
    order
}

/// Adds a row behind the rows of an order. The lifecycle has few steps, and the store does not check them: each starts at the beginning.
pub async fn change(store: &RedisStore, factory: &Factory, order: Order) -> Order {
    let order = Order { status: Status::Pending, ..order };
    let commit = factory.change(&order, Status::Processing, P0);
    let next = commit.order.clone();
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Done);
    next
}

/// Every row in id order.
pub async fn rows(store: &RedisStore) -> Vec<RowView> {
    store.rows(&RowFilter::default(), 100_000).await.unwrap()
}
