//! PartitionAcquirer: acquires a partition's lease, resolves the batch that the former owner left open, and releases the lease.
mod lease_events;
mod overlapping_failures;
mod timeline;

use std::sync::Arc;

use outbox::store_was_rewound;
use ports::Error;
use ports::outbox::{BatchOutcome, FencedOutcome, ResolvedBatch};
use ports::partitions::{
    AcquireReason, AcquiredLease, Acquisition, Counter, LeaseFence, OpenBatch, PartitionNo, ReleaseOutcome, Token,
};
use tokio::time::Instant;

use super::acquire_failure::AcquireFailure;
use super::context::RelayContext;
use super::held_partition::HeldPartition;
use super::settlement;
use crate::retry_handler::parked_row::ParkedRow;
use overlapping_failures::OverlappingFailures;
use timeline::TimelineGuard;

/// Result of an attempt to acquire a partition.
pub enum AcquireResult {
    /// This instance holds the lease, and nothing is open.
    Acquired(HeldPartition),
    /// Another live instance holds the lease.
    HeldElsewhere,
}

/// Result of an attempt to hand a partition over.
pub enum HandoverResult {
    /// This instance does not hold the lease any more.
    Released,
    /// The lease remains, with the held partition where its state is known.
    NotReleased { held: Option<HeldPartition>, failure: AcquireFailure },
}

/// Acquires and releases all partitions.
pub struct PartitionAcquirer {
    context: Arc<RelayContext>,
    failures: Arc<OverlappingFailures>,
    timeline: TimelineGuard,
}

/// How often one acquisition accepts a timeline: each fail-over meanwhile needs another acceptance.
const TIMELINE_CHANGES_MAX: u32 = 3;

impl PartitionAcquirer {
    /// An acquirer that uses these ports.
    pub fn new(context: Arc<RelayContext>) -> Self {
        let failures = Arc::new(OverlappingFailures::default());
        let timeline = TimelineGuard::new(Arc::clone(&context), Arc::clone(&failures));
        Self { context, failures, timeline }
    }

    /// Acquires the partition and resolves the batch that its former owner left open. Every acquisition reads the watermark, so that the
    /// counter stays above it even if the store was restored to an earlier time.
    pub async fn acquire(
        &self,
        partition: PartitionNo,
        reason: &mut AcquireReason,
    ) -> Result<AcquireResult, AcquireFailure> {
        self.timeline.repeat_unanswered().await;
        let Some(mut fence) = self.acquire_lease(partition, reason, None).await? else {
            return Ok(AcquireResult::HeldElsewhere);
        };
        let watermark = self.failures.call(self.context.broker.watermark(partition, None)).await?;
        // The acquisition raised the counter by one, and no batch has this value as its token. Compare the watermark with the value before.
        let former = fence.counter.saturating_sub(1);
        if let Some(seen) = watermark.filter(|_| store_was_rewound(watermark, former)) {
            // If this process was frozen since the acquisition, it may have lost the lease, and the watermark is the next owner's.
            let Some(again) = self.acquire_lease(partition, reason, None).await? else {
                return Ok(AcquireResult::HeldElsewhere);
            };
            let was_held_throughout = again.counter == fence.counter + 1;
            let known = if was_held_throughout { former } else { again.counter.saturating_sub(1) };
            fence = again;
            if !store_was_rewound(watermark, known) {
                return Ok(AcquireResult::Acquired(HeldPartition { fence, unsettled: None }));
            }
            self.report_rewind(&fence, watermark).await;
            let decided = self.timeline.decided_watermark(partition, seen).await?;
            let Some(above) = self.acquire_lease(partition, reason, Some(decided)).await? else {
                return Ok(AcquireResult::HeldElsewhere);
            };
            fence = above;
        }
        Ok(AcquireResult::Acquired(HeldPartition { fence, unsettled: None }))
    }

    /// Acquires the lease unless a live instance holds it, and resolves. `reason` changes only after the store has recorded it: a
    /// worker's death counts even if the first acquisition after it fails.
    async fn acquire_lease(
        &self,
        partition: PartitionNo,
        reason: &mut AcquireReason,
        watermark: Option<Token>,
    ) -> Result<Option<LeaseFence>, AcquireFailure> {
        let RelayContext { local_leases, bus, .. } = &*self.context;
        for _ in 0..TIMELINE_CHANGES_MAX {
            let (requested, started) = (local_leases.request_time(), Instant::now());
            let acquisition = self.request_lease(partition, *reason, watermark).await?;
            let AcquiredLease { mut fence, open_batch } = match acquisition {
                Acquisition::Acquired(acquired) => acquired,
                Acquisition::Held { by, .. } => {
                    // With another reason this worker, or the one before it, held the lease.
                    if *reason != AcquireReason::Unowned {
                        lease_events::report_lost(bus, partition, Some(&by));
                    }
                    *reason = AcquireReason::Unowned;
                    return Ok(None);
                }
                Acquisition::TimelineChanged(change) => {
                    self.timeline.accept_timeline(&change, started).await?;
                    continue;
                }
            };
            lease_events::report_acquired(bus, partition, fence.epoch, *reason);
            *reason = AcquireReason::OutcomeUnknown;
            local_leases.record_acquired(partition, fence.epoch, requested);
            if let Some(open) = open_batch {
                fence.counter = self.resolve(&fence, &open).await?;
            }
            return Ok(Some(fence));
        }
        Err(Error::Unreachable("the store's timeline changes again and again".into()).into())
    }

    /// Sends one acquisition. Without a reply, the epoch of the lease is unknown.
    async fn request_lease(
        &self,
        partition: PartitionNo,
        reason: AcquireReason,
        watermark: Option<Token>,
    ) -> Result<Acquisition, Error> {
        let RelayContext { leases, local_leases, instance, .. } = &*self.context;
        if local_leases.is_closed() {
            return Err(Error::Unreachable("this instance stops".into()));
        }
        let was_unknown = local_leases.set_epoch_unknown(partition);
        let acquisition = leases.acquire(partition, instance, reason, watermark, local_leases.ttl()).await;
        // A request that took no effect says nothing about an earlier one without a reply.
        let may_be_acquired = match &acquisition {
            Ok(Acquisition::Acquired(_)) => true,
            Ok(Acquisition::Held { .. }) => false,
            Ok(Acquisition::TimelineChanged(_)) => was_unknown,
            Err(error) => was_unknown || error.outcome_unknown(),
        };
        if !may_be_acquired {
            local_leases.clear_epoch_unknown(partition);
        }
        acquisition
    }

    /// Resolves the open batch. It fences the session of the batch first: after that nothing of the batch can commit, so the watermark is final.
    async fn resolve(&self, fence: &LeaseFence, open: &OpenBatch) -> Result<Counter, AcquireFailure> {
        let RelayContext { broker, outbox, producers, poison, metrics, bus, .. } = &*self.context;
        self.failures.call(broker.fence(&open.session)).await?;
        producers.end(&open.session).await;
        let watermark = self.failures.call(broker.watermark(fence.partition, Some(&open.session))).await?;
        // The counter may have passed the watermark since the store went back: a later acquisition would not see it.
        if store_was_rewound(watermark, open.token)
            && !store_was_rewound(watermark, fence.counter)
            && !self.timeline.has_covered(fence.partition, watermark).await
        {
            self.report_rewind(fence, watermark).await;
        }
        let outcome = BatchOutcome::from_watermark(watermark, open.token, open.claimer_died);
        let ResolvedBatch { closed, parked } = outbox.resolve(fence, open.token, outcome, poison).await?;
        let (partition, epoch, token) = (fence.partition.0, fence.epoch, open.token);
        tracing::info!(
            event = "batch_resolved", partition, epoch, token, verdict = ?outcome, session = %open.session,
            "partition {partition}: batch {token} of an earlier claim was open; resolved by its watermark: {outcome:?}"
        );
        lease_events::report_resolved(bus, fence, token, outcome);
        metrics.outbox_entries_failed.inc_by(parked.len() as u64);
        parked.iter().for_each(|row| ParkedRow::from(row).report(bus));
        match closed {
            FencedOutcome::Done { counter, rows } => {
                metrics.outbox_lease_reclaimed_total.inc_by(rows);
                if outcome == BatchOutcome::Published {
                    settlement::count_delivered(metrics, rows);
                }
                Ok(counter)
            }
            FencedOutcome::Stale => {
                Err(Error::Unreachable(format!("partition {partition} changed its owner during the resolution")).into())
            }
        }
    }

    async fn report_rewind(&self, fence: &LeaseFence, watermark: Option<Token>) {
        self.context.metrics.outbox_store_rewound_total.inc();
        let (partition, epoch, counter) = (fence.partition.0, fence.epoch, fence.counter);
        lease_events::report_rewind(&self.context.bus, fence, watermark);
        tracing::error!(
            event = "store_rewound",
            partition,
            epoch,
            counter,
            watermark,
            "the store was rewound: the broker has committed batches that the store does not contain; events before now may be published twice"
        );
        self.context.empty_cache().await;
    }

    /// Settles and releases a partition, so that its next owner need not wait for the lease to expire. Without an open batch the release needs no
    /// broker. With an open batch and without `held` the store refuses the release; the batch is then resolved first, because otherwise the
    /// heartbeat would renew the lease for ever.
    pub async fn hand_over(
        &self,
        partition: PartitionNo,
        mut held: Option<HeldPartition>,
        reason: &mut AcquireReason,
    ) -> HandoverResult {
        let RelayContext { leases, local_leases, instance, bus, .. } = &*self.context;
        if let Some(unsettled) = &mut held
            && settlement::settle(&self.context, unsettled).await.is_err()
        {
            held = None;
        }
        if held.is_none() && local_leases.is_epoch_unknown(partition) {
            // A lease whose epoch is unknown cannot be released: acquired again, it has an epoch that is known.
            match self.acquire_lease(partition, reason, None).await {
                Ok(Some(fence)) => held = Some(HeldPartition { fence, unsettled: None }),
                Ok(None) => return HandoverResult::Released,
                Err(failure) => return HandoverResult::NotReleased { held: None, failure },
            }
        }
        loop {
            let known = held.as_ref().map(|held| held.fence.epoch);
            let Some(epoch) = known.or_else(|| local_leases.epoch(partition)) else { return HandoverResult::Released };
            match leases.release(partition, instance, epoch).await {
                Ok(outcome @ (ReleaseOutcome::Done | ReleaseOutcome::NotHeld)) => {
                    if outcome == ReleaseOutcome::Done {
                        lease_events::report_released(bus, partition, epoch);
                    } else {
                        lease_events::report_lost(bus, partition, None);
                    }
                    local_leases.remove(partition, epoch);
                    return HandoverResult::Released;
                }
                Ok(ReleaseOutcome::InFlight) if held.is_none() => match self.acquire(partition, reason).await {
                    Ok(AcquireResult::Acquired(acquired)) => held = Some(acquired),
                    Ok(AcquireResult::HeldElsewhere) => return HandoverResult::Released,
                    Err(failure) => return HandoverResult::NotReleased { held: None, failure },
                },
                Ok(ReleaseOutcome::InFlight) => {
                    let error = Error::Broken("the store has an open batch that this instance does not know".into());
                    return HandoverResult::NotReleased { held, failure: error.into() };
                }
                Err(error) => return HandoverResult::NotReleased { held, failure: error.into() },
            }
        }
    }
}
