//! Stores that are wrong on purpose.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Status, Subject};
use ports::Error;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowDiagnosis, RowFilter, RowSelector, RowView};
use ports::orders::{Commit, Committed, IdempotencyMark, OrderFilter, OrderStore, PageStart};
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, Claimed, Depth, Disposition, Exclusion, FencedOutcome, OutboxStore, RowId,
    Settlement,
};
use ports::partitions::{
    AcquireReason, Acquisition, Epoch, Fence, InstanceId, MemberView, PartitionLeases, PartitionNo, PartitionView,
    Release, Token,
};

use crate::broken::Flaw;

pub(crate) struct BrokenOrders {
    pub(crate) real: Arc<dyn OrderStore>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl OrderStore for BrokenOrders {
    async fn commit(&self, mut commit: Commit) -> Result<Committed, Error> {
        if self.flaw == Flaw::DropsTheMark {
            commit.mark = None;
        }
        if self.flaw == Flaw::DropsTheEvents {
            commit.events.clear();
        }
        match self.real.commit(commit.clone()).await? {
            Committed::Stale { current } if self.flaw == Flaw::OverwritesWhatIsNewer => {
                self.real.commit(Commit { expected: Some(current), ..commit }).await
            }
            answer => Ok(answer),
        }
    }
    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        self.real.find(id).await
    }
    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let mut page = self.real.list(filter, from, limit).await?;
        if self.flaw == Flaw::ListsOldestFirst {
            page.reverse();
        }
        Ok(page)
    }
    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        let whatever = OrderFilter::default();
        self.real.count(if self.flaw == Flaw::CountsWhateverIsThere { &whatever } else { filter }).await
    }
    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        self.real.oldest(status, after, limit).await
    }
    async fn find_mark(&self, subject: &Subject, key: &str, keep: Duration) -> Result<Option<IdempotencyMark>, Error> {
        self.real.find_mark(subject, key, keep).await
    }
    async fn sweep_marks(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let keep = if self.flaw == Flaw::SweepsYoungMarks { keep / 1_000 } else { keep };
        self.real.sweep_marks(keep, limit).await
    }
}

pub(crate) struct BrokenOutbox {
    pub(crate) real: Arc<dyn OutboxStore>,
    pub(crate) leases: Arc<dyn PartitionLeases>,
    pub(crate) flaw: Flaw,
}

impl BrokenOutbox {
    /// What the caller should have named, had anybody looked.
    async fn fence(&self, named: &Fence) -> Result<Fence, Error> {
        if self.flaw != Flaw::IgnoresTheFence {
            return Ok(named.clone());
        }
        let views = self.leases.overview().await?;
        let view = views.into_iter().find(|view| view.partition == named.partition);
        Ok(view.map_or(named.clone(), |view| Fence {
            partition: view.partition,
            owner: view.owner.unwrap_or_else(|| named.owner.clone()),
            epoch: view.epoch,
            counter: view.counter,
        }))
    }
}

#[async_trait]
impl OutboxStore for BrokenOutbox {
    async fn claim(&self, mut claim: Claim) -> Result<Claimed, Error> {
        claim.fence = self.fence(&claim.fence).await?;
        let mut claimed = self.real.claim(claim.clone()).await?;
        if let (Claimed::Nothing { suspect_due: true, .. }, Flaw::TriesSuspectsAsOrdinary) = (&claimed, self.flaw) {
            claimed = self.real.claim(Claim { kind: ClaimKind::Trial, ..claim }).await?;
        }
        if let Claimed::Batch(batch) = &mut claimed {
            for row in &mut batch.rows {
                match self.flaw {
                    Flaw::ForgetsAttempts => row.attempt = 1,
                    Flaw::DropsThePayload => row.payload = None,
                    _ => {}
                }
            }
        }
        Ok(claimed)
    }
    async fn exclude(&self, fence: &Fence, token: Token, rows: &[Exclusion]) -> Result<FencedOutcome, Error> {
        let mut rows = rows.to_vec();
        for row in &mut rows {
            match (self.flaw, row.disposition) {
                (Flaw::LetsLaterRowsOvertake, Disposition::ParkKey) => row.disposition = Disposition::ParkRow,
                (Flaw::RetriesAtOnce, Disposition::Retry(_)) => row.disposition = Disposition::Retry(Duration::ZERO),
                _ => {}
            }
        }
        self.real.exclude(&self.fence(fence).await?, token, &rows).await
    }
    async fn settle(&self, mut settlement: Settlement) -> Result<FencedOutcome, Error> {
        settlement.fence = self.fence(&settlement.fence).await?;
        if self.flaw == Flaw::SettlesNothing {
            return self.real.resolve(&settlement.fence, settlement.token, BatchOutcome::NotSent).await;
        }
        self.real.settle(settlement).await
    }
    async fn resolve(&self, fence: &Fence, token: Token, verdict: BatchOutcome) -> Result<FencedOutcome, Error> {
        let verdict = match (self.flaw, verdict) {
            (Flaw::ForgetsDeaths, BatchOutcome::ClaimerDied) => BatchOutcome::NotSent,
            (Flaw::SettlesForGood, _) => BatchOutcome::Published,
            (_, verdict) => verdict,
        };
        self.real.resolve(&self.fence(fence).await?, token, verdict).await
    }
    async fn depth(&self) -> Result<Depth, Error> {
        self.real.depth().await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let limit = if self.flaw == Flaw::SweepsWithoutLimit { 1_000 } else { limit };
        let keep = if self.flaw == Flaw::SweepsYoungRows { keep / 1_000 } else { keep };
        self.real.sweep(keep, limit).await
    }
}

pub(crate) struct BrokenOperators {
    pub(crate) real: Arc<dyn OutboxOperators>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl OutboxOperators for BrokenOperators {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let all = RowFilter { after: filter.after, ..RowFilter::default() };
        self.real.rows(if self.flaw == Flaw::IgnoresTheFilter { &all } else { filter }, limit).await
    }
    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        self.real.row(id).await
    }
    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let standing = self.real.diagnose(selector).await?;
        let hides = self.flaw == Flaw::HidesTheHead;
        Ok(standing.map(|standing| if hides { RowDiagnosis { head: None, ..standing } } else { standing }))
    }
    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        if self.flaw == Flaw::RetriesNothing {
            return Ok(OperatorOutcome::Done(1));
        }
        self.real.retry(id, audit).await
    }
    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        if self.flaw == Flaw::ParksNothing {
            return Ok(OperatorOutcome::Done(1));
        }
        self.real.park(id, audit).await
    }
    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        commit: bool,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let commit = commit || self.flaw == Flaw::RedrivesWhenDry;
        self.real.redrive(filter, limit, commit, audit).await
    }
}

pub(crate) struct BrokenLeases {
    pub(crate) real: Arc<dyn PartitionLeases>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl PartitionLeases for BrokenLeases {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<Vec<MemberView>, Error> {
        let mut members = self.real.heartbeat(instance, dead_after).await?;
        if self.flaw == Flaw::SeesNobody {
            members.retain(|member| member.instance == *instance);
        }
        Ok(members)
    }
    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        self.real.leave(instance).await
    }
    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        because: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let watermark = watermark.filter(|_| self.flaw != Flaw::IgnoresTheWatermark);
        let because = match (self.flaw, because) {
            (Flaw::TakesDoubtForDeath, AcquireReason::Uncertain) => AcquireReason::WorkerDied,
            (_, because) => because,
        };
        let mut acquisition = self.real.acquire(partition, owner, because, watermark, ttl).await?;
        if let (Acquisition::Held { by, .. }, Flaw::StealsFromTheLiving) = (&acquisition, self.flaw) {
            let views = self.real.overview().await?;
            let held = views.iter().find(|view| view.partition == partition).map_or(0, |view| view.epoch);
            self.real.release(partition, by, held).await?;
            acquisition = self.real.acquire(partition, owner, because, watermark, ttl).await?;
        }
        if let (Acquisition::Taken(acquired), Flaw::ForgetsTheOpenBatch) = (&mut acquisition, self.flaw) {
            acquired.in_flight = None;
        }
        Ok(acquisition)
    }
    async fn renew(
        &self,
        owner: &InstanceId,
        held: &[(PartitionNo, Epoch)],
        ttl: Duration,
    ) -> Result<Vec<PartitionNo>, Error> {
        let renewed = self.real.renew(owner, held, ttl).await?;
        let claimed = || held.iter().map(|(partition, _)| *partition).collect();
        Ok(if self.flaw == Flaw::RenewsEverything { claimed() } else { renewed })
    }
    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<Release, Error> {
        match self.real.release(partition, owner, epoch).await? {
            Release::InFlight if self.flaw == Flaw::ReleasesWhatIsInFlight => Ok(Release::Done),
            release => Ok(release),
        }
    }
    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let mut views = self.real.overview().await?;
        if self.flaw == Flaw::ShowsHalf {
            views.truncate(views.len() / 2);
        }
        Ok(views)
    }
}
