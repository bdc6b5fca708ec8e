//! Partition leases with a flaw.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::partitions::{
    AcquireReason, Acquisition, Epoch, FreePartition, InstanceId, InstanceRank, LeaseSurvey, PartitionLeases,
    PartitionNo, PartitionView, ReleaseOutcome, Renewal, TimelineAcceptance, TimelineChange, Token,
};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenLeases {
    pub(crate) inner: Arc<dyn PartitionLeases>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl PartitionLeases for BrokenLeases {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        let rank = self.inner.heartbeat(instance, dead_after).await?;
        Ok(if self.flaw == Flaw::HidesOtherMembers { InstanceRank { rank: 0, live: 1 } } else { rank })
    }
    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        let mut survey = self.inner.survey(instance).await?;
        match self.flaw {
            Flaw::CountsNoLeases => survey.members.iter_mut().for_each(|member| member.held = 0),
            Flaw::HidesFreePartitions => survey.free.clear(),
            Flaw::OffersHeldPartitions => {
                let held = survey.own.drain(..).map(|partition| FreePartition { partition, idle: Duration::ZERO });
                survey.free.extend(held);
            }
            Flaw::ShowsNewestFreeFirst => survey.free.reverse(),
            _ => {}
        }
        Ok(survey)
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
        let watermark = watermark.filter(|_| self.flaw != Flaw::IgnoresWatermark);
        let reason = match (self.flaw, reason) {
            (Flaw::TreatsUncertainAsDeath, AcquireReason::OutcomeUnknown) => AcquireReason::WorkerDied,
            (_, reason) => reason,
        };
        let mut acquisition = self.inner.acquire(partition, owner, reason, watermark, ttl).await?;
        if let (Acquisition::Held { by, .. }, Flaw::TakesLeaseOfLiveOwner) = (&acquisition, self.flaw) {
            let views = self.inner.overview().await?;
            let held = views.iter().find(|view| view.partition == partition).map_or(0, |view| view.epoch);
            self.inner.release(partition, by, held).await?;
            acquisition = self.inner.acquire(partition, owner, reason, watermark, ttl).await?;
        }
        if let (Acquisition::Acquired(acquired), Flaw::HidesOpenBatch) = (&mut acquisition, self.flaw) {
            acquired.open_batch = None;
        }
        Ok(acquisition)
    }
    async fn accept_timeline(
        &self,
        change: &TimelineChange,
        watermarks: &BTreeMap<PartitionNo, Token>,
    ) -> Result<TimelineAcceptance, Error> {
        self.inner.accept_timeline(change, watermarks).await
    }
    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        let renewal = self.inner.renew(owner, held, ttl).await?;
        let requested = || held.iter().map(|(partition, _)| *partition).collect();
        Ok(if self.flaw == Flaw::RenewsLostLeases { Renewal { renewed: requested(), ..renewal } } else { renewal })
    }
    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        match self.inner.release(partition, owner, epoch).await? {
            ReleaseOutcome::InFlight if self.flaw == Flaw::ReleasesWithOpenBatch => Ok(ReleaseOutcome::Done),
            release => Ok(release),
        }
    }
    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let mut views = self.inner.overview().await?;
        if self.flaw == Flaw::ShowsHalfOfPartitions {
            views.truncate(views.len() / 2);
        }
        Ok(views)
    }
}
