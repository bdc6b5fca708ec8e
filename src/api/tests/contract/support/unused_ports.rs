//! Ports of the relay, of which the HTTP side reads only counts and the partitions.
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Timestamp};
use ports::Error;
use ports::outbox::*;
use ports::partitions::*;

/// The ports that only the relay uses; calling them fails the test.
pub struct UnusedPorts;

#[async_trait]
impl OutboxStore for UnusedPorts {
    async fn claim(&self, _: Claim) -> Result<ClaimOutcome, Error> {
        unreachable!()
    }
    async fn exclude(&self, _: &LeaseFence, _: Token, _: &[Exclusion]) -> Result<ExclusionOutcome, Error> {
        unreachable!()
    }
    async fn settle(&self, _: Settlement) -> Result<FencedOutcome, Error> {
        unreachable!()
    }
    async fn resolve(
        &self,
        _: &LeaseFence,
        _: Token,
        _: BatchOutcome,
        _: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        unreachable!()
    }
    async fn depth(&self) -> Result<RowCounts, Error> {
        Ok(RowCounts::default())
    }
    async fn contains(&self, _: EventId) -> Result<bool, Error> {
        unreachable!()
    }
    async fn sweep(&self, _: Duration, _: u32) -> Result<u64, Error> {
        unreachable!()
    }
}

#[async_trait]
impl PartitionLeases for UnusedPorts {
    async fn heartbeat(&self, _: &InstanceId, _: Duration) -> Result<InstanceRank, Error> {
        unreachable!()
    }
    async fn survey(&self, _: &InstanceId) -> Result<LeaseSurvey, Error> {
        unreachable!()
    }
    async fn leave(&self, _: &InstanceId) -> Result<(), Error> {
        unreachable!()
    }
    async fn acquire(
        &self,
        _: PartitionNo,
        _: &InstanceId,
        _: AcquireReason,
        _: Option<Token>,
        _: Duration,
    ) -> Result<Acquisition, Error> {
        unreachable!()
    }
    async fn renew(&self, _: &InstanceId, _: &[(PartitionNo, Epoch)], _: Duration) -> Result<Renewal, Error> {
        unreachable!()
    }
    async fn release(&self, _: PartitionNo, _: &InstanceId, _: Epoch) -> Result<ReleaseOutcome, Error> {
        unreachable!()
    }
    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        Ok(vec![PartitionView {
            partition: PartitionNo(0),
            owner: Some(InstanceId("one".into())),
            epoch: 3,
            counter: 12,
            open_batch: Some(12),
            expires_at: Some(Timestamp::from_millis(5_000)),
            depth: 2,
        }])
    }
}
