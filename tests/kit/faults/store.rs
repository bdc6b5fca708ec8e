//! Orders, events of other services, outbox, leases and inbox of a store, each under a fault script.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Order, OrderId, Status, Subject};
use ports::Error;
use ports::inbox::{Inbox, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, OrderFilter, OrderStore, PageStart};
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore};
use ports::outbox::{
    BatchOutcome, Claim, ClaimOutcome, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore, PoisonPolicy,
    ResolvedBatch, RowCounts, SettledClaim, Settlement,
};
use ports::partitions::{
    AcquireReason, Acquisition, Epoch, InstanceId, InstanceRank, LeaseFence, LeaseSurvey, PartitionLeases, PartitionNo,
    PartitionView, ReleaseOutcome, Renewal, TimelineAcceptance, TimelineChange, Token,
};

use crate::faults::script::{Call, FaultScript, InjectedFault, Timeline, outcome_under};

macro_rules! faulty {
    ($(#[$doc:meta])* $name:ident, $port:ident) => {
        $(#[$doc])*
        pub struct $name {
            inner: Arc<dyn $port>,
            script: FaultScript,
        }

        impl $name {
            /// Wraps a port with a fault script.
            pub fn wrap(inner: Arc<dyn $port>, script: FaultScript) -> Self {
                Self { inner, script }
            }
        }
    };
}

faulty!(
    /// An order store with injected faults.
    FaultyOrders, OrderStore
);
faulty!(
    /// A store of other services' events with injected faults.
    FaultyEvents, EventStore
);
faulty!(
    /// An outbox with injected faults.
    FaultyOutbox, OutboxStore
);
faulty!(
    /// Partition leases with injected faults.
    FaultyLeases, PartitionLeases
);
faulty!(
    /// An inbox with injected faults.
    FaultyInbox, Inbox
);

#[async_trait]
impl Inbox for FaultyInbox {
    async fn commit(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        self.script.apply(Call::Consume, self.inner.commit(group, events)).await
    }
    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        self.inner.remote_stamp(order_id).await
    }
    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error> {
        self.inner.retry_route(group, key).await
    }
    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        self.script.apply(Call::UpdateRetryRoutes, self.inner.update_retry_routes(group, changes)).await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        self.inner.sweep(keep, limit).await
    }
}

#[async_trait]
impl OrderStore for FaultyOrders {
    async fn commit(&self, commit: Commit) -> Result<CommitOutcome, Error> {
        self.script.apply(Call::Commit, self.inner.commit(commit)).await
    }
    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        self.script.apply(Call::Read, self.inner.find(id)).await
    }
    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        self.script.apply(Call::Read, self.inner.list(filter, from, limit)).await
    }
    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        self.script.apply(Call::Read, self.inner.count(filter)).await
    }
    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        self.script.apply(Call::Read, self.inner.oldest(status, after, limit)).await
    }
    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        self.script.apply(Call::Read, self.inner.find_idempotency_record(subject, key, keep)).await
    }
    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        self.inner.sweep_idempotency_records(keep, limit).await
    }
}

#[async_trait]
impl EventStore for FaultyEvents {
    async fn publish(&self, batch: EventBatch) -> Result<EventBatchOutcome, Error> {
        self.script.apply(Call::PublishEvents, self.inner.publish(batch)).await
    }
}

#[async_trait]
impl OutboxStore for FaultyOutbox {
    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome, Error> {
        self.script.apply(Call::Claim, self.inner.claim(claim)).await
    }
    async fn exclude(&self, fence: &LeaseFence, token: Token, rows: &[Exclusion]) -> Result<ExclusionOutcome, Error> {
        let done = ExclusionOutcome::Done { token: fence.next_token(), rows: rows.len() as u64 };
        match self.script.next_fault(Call::Exclude).await {
            Some(InjectedFault::LostByStore) => Ok(done),
            fault => outcome_under(Call::Exclude, fault, self.inner.exclude(fence, token, rows)).await,
        }
    }
    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        self.script.apply(Call::Settle, self.inner.settle(settlement)).await
    }
    async fn settle_and_claim(&self, settlement: Settlement, claim: Claim) -> Result<SettledClaim, Error> {
        let claimed = self.script.apply(Call::Claim, self.inner.settle_and_claim(settlement, claim));
        self.script.apply(Call::Settle, claimed).await
    }
    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        self.script.apply(Call::Resolve, self.inner.resolve(fence, token, outcome, poison)).await
    }
    fn expect_requests(&self, count: u32) {
        self.inner.expect_requests(count);
    }
    async fn depth(&self) -> Result<RowCounts, Error> {
        self.script.apply(Call::RowCounts, self.inner.depth()).await
    }
    async fn contains(&self, event: EventId) -> Result<bool, Error> {
        self.script.apply(Call::Read, self.inner.contains(event)).await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        self.script.apply(Call::SweepArchive, self.inner.sweep(keep, limit)).await
    }
}

#[async_trait]
impl PartitionLeases for FaultyLeases {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        self.script.apply(Call::Heartbeat, self.inner.heartbeat(instance, dead_after)).await
    }
    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        self.script.apply(Call::Survey, self.inner.survey(instance)).await
    }
    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        self.inner.leave(instance).await
    }
    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let Timeline { number, accepted, watermarks, .. } = self.script.timeline();
        if number != accepted {
            let changed = TimelineChange { timeline: number.to_string(), complete_until: None };
            let changed = async { Ok(Acquisition::TimelineChanged(changed)) };
            return self.script.apply(Call::Acquire, changed).await;
        }
        let watermark = watermark.max(watermarks.get(&partition).copied());
        self.script.apply(Call::Acquire, self.inner.acquire(partition, owner, reason, watermark, ttl)).await
    }
    async fn accept_timeline(
        &self,
        change: &TimelineChange,
        watermarks: &BTreeMap<PartitionNo, Token>,
    ) -> Result<TimelineAcceptance, Error> {
        let accept = async {
            let Timeline { number, accepted, unanswered, .. } = self.script.timeline();
            if number == accepted || change.timeline != number.to_string() {
                return Ok(unanswered.unwrap_or(TimelineAcceptance::AlreadyDone));
            }
            let is_behind = |view: &&PartitionView| watermarks.get(&view.partition) > Some(&view.counter);
            let behind = self.inner.overview().await?.iter().filter(is_behind).count();
            let done = TimelineAcceptance::Accepted { partitions_behind: u32::try_from(behind).unwrap_or(u32::MAX) };
            let (accepted, watermarks) = (number, watermarks.clone());
            self.script.set_timeline(Timeline { number, accepted, watermarks, unanswered: Some(done) });
            Ok(done)
        };
        let result = self.script.apply(Call::AcceptTimeline, accept).await;
        if result.is_ok() {
            self.script.set_timeline(Timeline { unanswered: None, ..self.script.timeline() });
        }
        result
    }
    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        self.script.apply(Call::Renew, self.inner.renew(owner, held, ttl)).await
    }
    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        self.script.apply(Call::Release, self.inner.release(partition, owner, epoch)).await
    }
    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        self.inner.overview().await
    }
}
