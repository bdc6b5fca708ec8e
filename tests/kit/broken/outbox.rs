//! An outbox with a flaw.
pub(crate) mod events;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::EventId;
use ports::Error;
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, ClaimOutcome, Disposition, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore,
    PoisonPolicy, ResolvedBatch, RowCounts, SettledClaim, Settlement,
};
use ports::partitions::{LeaseFence, PartitionLeases, Token};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenOutbox {
    pub(crate) inner: Arc<dyn OutboxStore>,
    pub(crate) leases: Arc<dyn PartitionLeases>,
    pub(crate) flaw: Flaw,
}

impl BrokenOutbox {
    /// The current fence of the partition, instead of the one that the caller names.
    async fn fence(&self, named: &LeaseFence) -> Result<LeaseFence, Error> {
        if self.flaw != Flaw::IgnoresFence {
            return Ok(named.clone());
        }
        let views = self.leases.overview().await?;
        let view = views.into_iter().find(|view| view.partition == named.partition);
        Ok(view.map_or(named.clone(), |view| LeaseFence {
            partition: view.partition,
            owner: view.owner.unwrap_or_else(|| named.owner.clone()),
            epoch: view.epoch,
            counter: view.counter,
        }))
    }

    /// The token of the batch that is open, instead of one that an exclusion has replaced.
    async fn token(&self, fence: &LeaseFence, named: Token) -> Result<Token, Error> {
        if self.flaw != Flaw::AcceptsOldToken {
            return Ok(named);
        }
        let views = self.leases.overview().await?;
        let open = views.into_iter().find(|view| view.partition == fence.partition).and_then(|view| view.open_batch);
        Ok(open.filter(|open| named < *open).unwrap_or(named))
    }
}

#[async_trait]
impl OutboxStore for BrokenOutbox {
    async fn claim(&self, mut claim: Claim) -> Result<ClaimOutcome, Error> {
        claim.fence = self.fence(&claim.fence).await?;
        let mut claimed = self.inner.claim(claim.clone()).await?;
        if let (ClaimOutcome::NoneDue { suspect_due: true, .. }, Flaw::ClaimsSuspectsInOrdinaryClaims) =
            (&claimed, self.flaw)
        {
            claimed = self.inner.claim(Claim { kind: ClaimKind::Trial, ..claim }).await?;
        }
        if let ClaimOutcome::Batch(batch) = &mut claimed {
            for row in &mut batch.rows {
                match self.flaw {
                    Flaw::ReportsFirstAttempt => row.attempt = 1,
                    Flaw::DropsPayload => row.payload = None,
                    _ => {}
                }
            }
        }
        Ok(claimed)
    }
    async fn exclude(&self, fence: &LeaseFence, token: Token, rows: &[Exclusion]) -> Result<ExclusionOutcome, Error> {
        let mut rows = rows.to_vec();
        for row in &mut rows {
            match (self.flaw, row.disposition) {
                (Flaw::LetsLaterRowsOvertake, Disposition::ParkKey) => row.disposition = Disposition::ParkRow,
                (Flaw::RetriesWithoutDelay, Disposition::Retry(_)) => {
                    row.disposition = Disposition::Retry(Duration::ZERO)
                }
                (Flaw::ExclusionIgnoresAttempts, _) => row.attempts = 1,
                _ => {}
            }
        }
        let fence = self.fence(fence).await?;
        let outcome = self.inner.exclude(&fence, self.token(&fence, token).await?, &rows).await?;
        Ok(match outcome {
            ExclusionOutcome::Done { rows, .. } if self.flaw == Flaw::ExclusionReturnsOldToken => {
                ExclusionOutcome::Done { token, rows }
            }
            outcome => outcome,
        })
    }
    async fn settle(&self, mut settlement: Settlement) -> Result<FencedOutcome, Error> {
        settlement.fence = self.fence(&settlement.fence).await?;
        settlement.token = self.token(&settlement.fence, settlement.token).await?;
        if self.flaw == Flaw::SettleReturnsRows {
            let (fence, token) = (&settlement.fence, settlement.token);
            let returned = self.inner.resolve(fence, token, BatchOutcome::NotSent, &PoisonPolicy::default()).await?;
            return Ok(returned.closed);
        }
        self.inner.settle(settlement).await
    }
    async fn settle_and_claim(&self, settlement: Settlement, mut claim: Claim) -> Result<SettledClaim, Error> {
        if self.flaw == Flaw::ClaimsWithoutSettlement {
            let settled = FencedOutcome::Done { counter: settlement.token, rows: 0 };
            return Ok(SettledClaim { settled, claimed: self.claim(claim).await });
        }
        let settled = self.settle(settlement).await?;
        let FencedOutcome::Done { counter, .. } = settled else {
            return Ok(SettledClaim { settled, claimed: Ok(ClaimOutcome::Fenced) });
        };
        if self.flaw != Flaw::ClaimsUnderOldCounter {
            claim.fence.counter = counter;
        }
        Ok(SettledClaim { settled, claimed: self.claim(claim).await })
    }
    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        let outcome = match (self.flaw, outcome) {
            (Flaw::CountsNoDeaths, BatchOutcome::ClaimerDied) => BatchOutcome::NotSent,
            (Flaw::ResolvesAsPublished, _) => BatchOutcome::Published,
            (_, outcome) => outcome,
        };
        let fence = self.fence(fence).await?;
        let blocks_every_key = PoisonPolicy::default();
        let poison = if self.flaw == Flaw::IgnoresPoisonPolicy { &blocks_every_key } else { poison };
        let mut resolved = self.inner.resolve(&fence, self.token(&fence, token).await?, outcome, poison).await?;
        if self.flaw == Flaw::HidesParkedRows {
            resolved.parked.clear();
        }
        Ok(resolved)
    }
    async fn depth(&self) -> Result<RowCounts, Error> {
        self.inner.depth().await
    }
    async fn contains(&self, event: EventId) -> Result<bool, Error> {
        Ok(self.flaw == Flaw::ContainsEveryEvent || self.inner.contains(event).await?)
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let limit = if self.flaw == Flaw::OutboxSweepIgnoresLimit { 1_000 } else { limit };
        let keep = if self.flaw == Flaw::SweepsRecentRows { keep / 1_000 } else { keep };
        self.inner.sweep(keep, limit).await
    }
}
