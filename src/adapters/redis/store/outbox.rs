//! `OutboxStore`: each statement is one script under the partition's lease.
use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, Claimed, ClaimedBatch, Depth, Disposition, Exclusion, FencedOutcome, OutboxStore,
    RowId, Settlement,
};
use ports::partitions::{Fence, Token};

use super::words::{Reply, Words, broken};
use super::{RedisStore, millis, row};

/// Most payload bytes of a batch (one row always goes): a thousand large orders must not fill the memory.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest reason that is kept.
const REASON_MAX: usize = 256;

/// Partition, owner and epoch.
pub(super) fn owner(fence: &Fence) -> Words {
    Words::new().number(fence.partition).text(&fence.owner.0).number(fence.epoch)
}

#[async_trait]
impl OutboxStore for RedisStore {
    async fn claim(&self, claim: Claim) -> Result<Claimed, Error> {
        let Claim { fence, session: lane, limit, kind } = claim;
        let kind = if kind == ClaimKind::Trial { "trial" } else { "ordinary" };
        let words = owner(&fence).number(fence.counter).text(&lane.0).number(limit).text(kind).number(BATCH_BYTES_MAX);
        let mut told = self.parts("claim", &self.inner.scripts.claim, words).await?;
        match &*told.text(0)? {
            "FENCED" => Ok(Claimed::Fenced),
            "NOTHING" => Ok(Claimed::Nothing {
                next_due: told.maybe_number(1)?.map(Duration::from_millis),
                suspect_due: told.flag(2)?,
            }),
            "BATCH" => {
                let rows = Reply::of(told.take(3))?.lists()?;
                let rows = rows.into_iter().map(row::claimed).collect::<Result<_, _>>()?;
                Ok(Claimed::Batch(ClaimedBatch { token: told.number(1)?, rows, more: told.flag(2)? }))
            }
            other => Err(broken(format!("a claim came to {other}"))),
        }
    }

    async fn exclude(&self, fence: &Fence, token: Token, rows: &[Exclusion]) -> Result<FencedOutcome, Error> {
        let mut words = owner(fence).number(fence.counter).number(token);
        for Exclusion { row, disposition: fate, failure_type, reason } in rows {
            let (fate, delay) = match fate {
                Disposition::Retry(delay) => ("retry", millis(*delay)),
                Disposition::ParkKey => ("park", 0),
                Disposition::ParkRow => ("alone", 0),
            };
            let reason: String = reason.chars().take(REASON_MAX).collect();
            words = words.number(row).text(fate).number(delay).text(failure_type.as_str()).text(reason);
        }
        changed(self.parts("exclude", &self.inner.scripts.exclude, words).await?)
    }

    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        let Settlement { fence, token, positions, by_fallback } = settlement;
        let (mut by_fallback, mut words) =
            (by_fallback.into_iter().collect::<HashSet<RowId>>(), owner(&fence).number(token));
        for (row, place) in positions {
            let fallback = u8::from(by_fallback.remove(&row));
            words = words.number(row).number(fallback).number(place.partition).number(place.offset).text(&place.topic);
        }
        for row in by_fallback {
            words = words.number(row).number(1).text("").text("").text("");
        }
        changed(self.parts("settle", &self.inner.scripts.settle, words).await?)
    }

    async fn resolve(&self, fence: &Fence, token: Token, verdict: BatchOutcome) -> Result<FencedOutcome, Error> {
        let verdict = match verdict {
            BatchOutcome::Published => "published",
            BatchOutcome::ClaimerDied => "died",
            BatchOutcome::NotSent => "returned",
        };
        let words = owner(fence).number(fence.counter).number(token).text(verdict);
        changed(self.parts("resolve", &self.inner.scripts.resolve, words).await?)
    }

    async fn depth(&self) -> Result<Depth, Error> {
        let mut told = self.seen("depth", &self.inner.scripts.depth, Words::new()).await?;
        Ok(Depth {
            pending: told.number(0)?,
            in_flight: told.number(1)?,
            failed: told.number(2)?,
            parked: told.number(3)?,
            sent: told.number(4)?,
            oldest_unsent: told.maybe_number(5)?.map(Duration::from_millis),
        })
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let words = Words::new().number(millis(keep)).number(limit);
        let told = self.change("outbox_sweep", &self.inner.scripts.sweep, words).await?;
        Reply::one(told).number(0)
    }
}

fn changed(mut told: Reply) -> Result<FencedOutcome, Error> {
    match &*told.text(0)? {
        "DONE" => Ok(FencedOutcome::Done { counter: told.number(1)?, rows: told.number(2)? }),
        "STALE" => Ok(FencedOutcome::Stale),
        other => Err(broken(format!("a statement came to {other}"))),
    }
}
