//! A worker as the suites play it: holds one partition, knows its counter, claims and settles.
use std::time::Duration;

use domain::OrderId;
use ports::FailureType;
use ports::broker::Position;
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, Claimed, ClaimedBatch, ClaimedRow, Disposition, Exclusion, FencedOutcome, RowId,
    Settlement,
};
use ports::partitions::{
    AcquireReason, Acquired, Acquisition, Fence, OpenBatch, PartitionNo, ProducerSessionId, Token,
};

use super::given::{DAY, instance};
use crate::backend::Backend;

/// Long enough that a lease runs out in no case that is not about leases.
pub(crate) const LEASE: Duration = Duration::from_secs(100 * 86_400);
/// Longer than any case's retry, so that a worker counts as alive unless the case says otherwise.
pub(crate) const DEAD_AFTER: Duration = DAY;
/// More than any case writes.
pub(crate) const ALL: u32 = 512;

pub(crate) struct Worker<'b, B> {
    backend: &'b B,
    pub(crate) fence: Fence,
    pub(crate) lane: ProducerSessionId,
}

/// Takes a partition with a long lease and a living heartbeat.
pub(crate) async fn worker<'b, B: Backend>(backend: &'b B, name: &str, partition: PartitionNo) -> Worker<'b, B> {
    Worker::of(backend, taken(backend, name, partition, LEASE).await.fence)
}

/// Takes a partition that must be free to take.
pub(crate) async fn taken<B: Backend>(backend: &B, name: &str, partition: PartitionNo, ttl: Duration) -> Acquired {
    let owner = instance(name);
    backend.leases().heartbeat(&owner, DEAD_AFTER).await.expect("a heartbeat is heard");
    let acquisition = backend.leases().acquire(partition, &owner, AcquireReason::Vacant, None, ttl).await;
    match acquisition.expect("an acquisition is answered") {
        Acquisition::Taken(acquired) => acquired,
        held @ Acquisition::Held { .. } => panic!("{name} could not take {partition}: {held:?}"),
    }
}

impl<'b, B: Backend> Worker<'b, B> {
    /// The worker that holds this lease.
    pub(crate) fn of(backend: &'b B, fence: Fence) -> Self {
        let lane = ProducerSessionId(format!("{}-lane-0", fence.owner).into());
        Self { backend, fence, lane }
    }

    pub(crate) async fn ask(&mut self, limit: u32, kind: ClaimKind) -> Claimed {
        let claim = Claim { fence: self.fence.clone(), session: self.lane.clone(), limit, kind };
        let claimed = self.backend.outbox().claim(claim).await.expect("a claim is answered");
        if let Claimed::Batch(batch) = &claimed {
            assert!(batch.token > self.fence.counter, "a token is a counter value not used before");
            assert!(batch.rows.is_sorted_by(|a, b| a.id < b.id), "rows come in id order");
            assert!(!batch.rows.is_empty() && batch.rows.len() <= limit as usize, "1 to {limit} rows");
            self.fence.counter = batch.token;
        }
        claimed
    }

    /// An ordinary claim that must find something.
    pub(crate) async fn claim(&mut self, limit: u32) -> ClaimedBatch {
        batch(self.ask(limit, ClaimKind::Ordinary).await)
    }

    /// A trial that must find a suspect.
    pub(crate) async fn trial(&mut self) -> ClaimedBatch {
        batch(self.ask(ALL, ClaimKind::Trial).await)
    }

    /// An ordinary claim that must find nothing: how long until something is due, and whether a suspect is.
    pub(crate) async fn nothing(&mut self) -> (Option<Duration>, bool) {
        match self.ask(ALL, ClaimKind::Ordinary).await {
            Claimed::Nothing { next_due, suspect_due } => (next_due, suspect_due),
            other => panic!("nothing should be due, but: {other:?}"),
        }
    }

    pub(crate) async fn exclude(&mut self, token: Token, exclusions: &[Exclusion]) -> u64 {
        let changed = self.backend.outbox().exclude(&self.fence, token, exclusions).await;
        self.after(changed.expect("an exclusion is answered"))
    }

    pub(crate) async fn settle(&mut self, batch: &ClaimedBatch) -> u64 {
        let changed = self.backend.outbox().settle(self.settlement(batch)).await;
        self.after(changed.expect("a settlement is answered"))
    }

    pub(crate) fn settlement(&self, batch: &ClaimedBatch) -> Settlement {
        let positions = batch.rows.iter().map(|row| (row.id, self.position(row))).collect();
        Settlement { fence: self.fence.clone(), token: batch.token, positions, by_fallback: Vec::new() }
    }

    fn position(&self, row: &ClaimedRow) -> Position {
        Position { topic: row.topic.clone(), partition: 3, offset: row.id.unsigned_abs() }
    }

    pub(crate) async fn resolve(&mut self, token: Token, verdict: BatchOutcome) -> u64 {
        let changed = self.backend.outbox().resolve(&self.fence, token, verdict).await;
        self.after(changed.expect("a resolution is answered"))
    }

    fn after(&mut self, changed: FencedOutcome) -> u64 {
        match changed {
            FencedOutcome::Done { counter, rows } => {
                assert!(counter >= self.fence.counter, "a counter never falls");
                self.fence.counter = counter;
                rows
            }
            FencedOutcome::Stale => panic!("the statement was taken for out of date: {:?}", self.fence),
        }
    }

    /// Takes the partition again, for a reason; says what was left open.
    pub(crate) async fn again(&mut self, because: AcquireReason) -> Option<OpenBatch> {
        let Fence { partition, owner, .. } = &self.fence;
        let acquisition = self.backend.leases().acquire(*partition, owner, because, None, LEASE).await;
        match acquisition.expect("an acquisition is answered") {
            Acquisition::Taken(acquired) => {
                self.fence = acquired.fence;
                acquired.in_flight
            }
            Acquisition::Held { by, .. } => panic!("held by {by}"),
        }
    }

    /// Dies with a claimed batch in hand and comes back: the batch is resolved as such.
    pub(crate) async fn die_with(&mut self, token: Token) {
        let open = self.again(AcquireReason::WorkerDied).await.expect("the batch is still open");
        assert_eq!((open.token, open.claimer_died), (token, true));
        self.resolve(token, BatchOutcome::ClaimerDied).await;
    }

    /// Claims and settles until nothing more is due; returns what went, in the order in which it went.
    pub(crate) async fn drain(&mut self, limit: u32) -> Vec<ClaimedRow> {
        let mut gone = Vec::new();
        while let Claimed::Batch(batch) = self.ask(limit, ClaimKind::Ordinary).await {
            self.settle(&batch).await;
            gone.extend(batch.rows);
            assert!(gone.len() <= 1_000, "rows come back for ever");
        }
        gone
    }

    /// Claims everything, excludes every row of `key` at its first and settles the rest.
    pub(crate) async fn fail_head(&mut self, key: OrderId, fate: Disposition) -> RowId {
        let batch = self.claim(ALL).await;
        let head = batch.rows.iter().find(|row| row.key == key).expect("the key's head is claimed").id;
        self.exclude(batch.token, &[exclusion(head, fate)]).await;
        self.settle(&batch).await;
        head
    }
}

pub(crate) fn batch(claimed: Claimed) -> ClaimedBatch {
    match claimed {
        Claimed::Batch(batch) => batch,
        other => panic!("something should be due, but: {other:?}"),
    }
}

pub(crate) fn exclusion(row: RowId, fate: Disposition) -> Exclusion {
    Exclusion { row, disposition: fate, failure_type: FailureType::Validation, reason: "does not fit".into() }
}

pub(crate) fn keys(rows: &[ClaimedRow]) -> Vec<OrderId> {
    rows.iter().map(|row| row.key).collect()
}

pub(crate) fn ids(rows: &[ClaimedRow]) -> Vec<RowId> {
    rows.iter().map(|row| row.id).collect()
}
