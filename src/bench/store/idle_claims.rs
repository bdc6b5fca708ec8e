//! Claims that find nothing due: their cost for rows that wait.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::FailureType;
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, ClaimOutcome, ClaimedBatch, Disposition, Exclusion, ExclusionOutcome,
    FencedOutcome, OutboxStore, PoisonPolicy,
};
use ports::partitions::{LeaseFence, PartitionNo, ProducerSessionId};

use crate::error::Error;
use crate::program::{OpenStore, ThrowawayData};
use crate::store::statements::{MEASUREMENT_NAME, acquire};

/// Claims of a measurement, spread evenly over the partitions.
const CLAIMS: usize = 2_000;
/// Longer than any measurement: no waiting row becomes due.
const RETRY: Duration = Duration::from_secs(3_600);

/// Lets every row that is due wait for a retry. Returns how many rows wait, and the sorted times in milliseconds of claims that then find
/// nothing.
///
/// # Errors
/// The store cannot be opened, a statement fails, or a claim finds a row.
pub(crate) async fn idle_claims_ms(data: &impl ThrowawayData) -> Result<(u64, Vec<f64>), Error> {
    let store = data.open_store(MEASUREMENT_NAME).await?;
    let (outbox, leases) = (store.outbox(), store.leases());
    let mut fences = Vec::new();
    for partition in 0..data.partitions() {
        let fence = acquire(&*leases, PartitionNo(partition)).await?;
        fences.push(fence.ok_or_else(|| Error::new("another process uses the bench's data"))?);
    }
    let mut claims = IdleClaims { outbox, limit: data.batch(), fences };
    let waiting = claims.delay_all_rows().await?;
    let times = claims.measure().await?;
    store.close().await;
    Ok((waiting, times))
}

/// The leases of all partitions.
struct IdleClaims {
    outbox: Arc<dyn OutboxStore>,
    limit: u32,
    fences: Vec<LeaseFence>,
}

impl IdleClaims {
    async fn delay_all_rows(&mut self) -> Result<u64, Error> {
        let mut waiting = 0;
        for at in 0..self.fences.len() {
            while let ClaimOutcome::Batch(batch) = self.claim(at).await? {
                waiting += batch.rows.len() as u64;
                self.fences[at].counter = self.exclude(at, &batch).await?;
            }
        }
        Ok(waiting)
    }

    async fn claim(&self, at: usize) -> Result<ClaimOutcome, Error> {
        let (fence, session) = (self.fences[at].clone(), ProducerSessionId(MEASUREMENT_NAME.into()));
        Ok(self.outbox.claim(Claim { fence, session, limit: self.limit, kind: ClaimKind::Ordinary }).await?)
    }

    /// Excludes every row of a batch and closes it; returns the partition's counter.
    async fn exclude(&self, at: usize, batch: &ClaimedBatch) -> Result<u64, Error> {
        let refused = || Error::new("another process uses the bench's data");
        let fence = LeaseFence { counter: batch.token, ..self.fences[at].clone() };
        let wait = |row: i64| Exclusion {
            row,
            attempts: 1,
            disposition: Disposition::Retry(RETRY),
            failure_type: FailureType::Network,
            reason: "bench".into(),
        };
        let exclusions: Vec<_> = batch.rows.iter().map(|row| wait(row.id)).collect();
        let ExclusionOutcome::Done { token, .. } = self.outbox.exclude(&fence, batch.token, &exclusions).await? else {
            return Err(refused());
        };
        let fence = LeaseFence { counter: token, ..fence };
        match self.outbox.resolve(&fence, token, BatchOutcome::NotSent, &PoisonPolicy::default()).await?.closed {
            FencedOutcome::Done { counter, .. } => Ok(counter),
            FencedOutcome::Stale => Err(refused()),
        }
    }

    async fn measure(&self) -> Result<Vec<f64>, Error> {
        let mut times = Vec::with_capacity(CLAIMS);
        for number in 0..CLAIMS {
            let begin = Instant::now();
            let claimed = self.claim(number % self.fences.len()).await?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            if !matches!(claimed, ClaimOutcome::NoneDue { .. }) {
                return Err(Error::new("a row is due, or another process uses the bench's data"));
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}
