//! TimelineGuard: makes a store usable again after it was rewound. It fences every producer session of the installation, and reads the
//! watermarks that the counters must pass. Otherwise a transaction that is still open could commit a token that the store gives a second time.
//!
//! If the reply to an acceptance was lost, or its worker died, the store may have accepted the timeline, and then no later acquisition finds the
//! change. The acceptance is repeated, so that its result is logged.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use app::contract::rfc3339;
use domain::Timestamp;
use ports::broker::BrokerFailure;
use ports::partitions::{PartitionNo, TimelineAcceptance, TimelineChange, Token};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::overlapping_failures::OverlappingFailures;
use crate::partition_worker::acquire_failure::AcquireFailure;
use crate::partition_worker::context::RelayContext;

/// Fences all producer sessions and accepts timelines, one call at a time in this process.
pub struct TimelineGuard {
    context: Arc<RelayContext>,
    failures: Arc<OverlappingFailures>,
    last: Mutex<LastFence>,
    /// Whether there is an unanswered acceptance; read without waiting for a fence that runs.
    is_unanswered: AtomicBool,
}

/// The last time that all producer sessions were fenced.
#[derive(Default)]
struct LastFence {
    /// When the last acceptance ended.
    accepted_at: Option<Instant>,
    /// The last failed fence.
    failed: Option<(Instant, BrokerFailure)>,
    /// The highest committed token of each partition after the last fence.
    watermarks: BTreeMap<PartitionNo, Token>,
    /// The acceptance whose reply no worker has received.
    unanswered: Option<PendingAcceptance>,
}

/// The arguments of an acceptance.
#[derive(Clone)]
struct PendingAcceptance {
    change: TimelineChange,
    watermarks: BTreeMap<PartitionNo, Token>,
}

impl TimelineGuard {
    /// A guard that has fenced nothing yet.
    pub fn new(context: Arc<RelayContext>, failures: Arc<OverlappingFailures>) -> Self {
        Self { context, failures, last: Mutex::default(), is_unanswered: AtomicBool::new(false) }
    }

    /// Accepts the store's timeline, which an acquisition found at `requested`. The first of several callers does it, and the others share its
    /// result. After an error nothing is accepted, and no partition can be acquired.
    pub async fn accept_timeline(&self, change: &TimelineChange, requested: Instant) -> Result<(), AcquireFailure> {
        let mut last = self.last.lock().await;
        if last.accepted_at.is_some_and(|at| at > requested) {
            return Ok(());
        }
        self.fence_all(&mut last, requested).await?;
        // Before the call: the store may complete it after the worker that made it has died.
        let before = last.unanswered.take();
        let unanswered = PendingAcceptance { change: change.clone(), watermarks: last.watermarks.clone() };
        self.set_unanswered(&mut last, Some(unanswered));
        let acceptance = match self.context.leases.accept_timeline(change, &last.watermarks).await {
            Ok(acceptance) => acceptance,
            Err(error) => {
                if !error.outcome_unknown() {
                    self.set_unanswered(&mut last, before);
                }
                return Err(error.into());
            }
        };
        last.accepted_at = Some(Instant::now());
        self.record_answer(&mut last, change, acceptance).await;
        Ok(())
    }

    /// Repeats an acceptance whose reply was lost. If it fails again, the next call repeats it.
    pub async fn repeat_unanswered(&self) {
        if !self.is_unanswered.load(Ordering::Relaxed) {
            return;
        }
        let mut last = self.last.lock().await;
        let Some(PendingAcceptance { change, watermarks }) = last.unanswered.clone() else { return };
        if let Ok(acceptance) = self.context.leases.accept_timeline(&change, &watermarks).await {
            self.record_answer(&mut last, &change, acceptance).await;
        }
    }

    async fn record_answer(&self, last: &mut LastFence, change: &TimelineChange, acceptance: TimelineAcceptance) {
        self.set_unanswered(last, None);
        // Before the cache is emptied, which may take long: the store does not return this result a second time.
        match acceptance {
            TimelineAcceptance::Accepted { partitions_behind } => self.report(change, partitions_behind),
            TimelineAcceptance::AlreadyDone => report_accepted_elsewhere(change),
        }
        self.context.empty_cache().await;
    }

    fn set_unanswered(&self, last: &mut LastFence, unanswered: Option<PendingAcceptance>) {
        self.is_unanswered.store(unanswered.is_some(), Ordering::Relaxed);
        last.unanswered = unanswered;
    }

    /// The watermark of a partition, read after every producer session was fenced. For a store without timelines whose counter is below `seen`, a
    /// watermark that was read before the fence. Sessions that open after a fence claim only tokens above the counters, so a fence after which
    /// the watermark was at least `seen` need not be repeated.
    pub async fn decided_watermark(&self, partition: PartitionNo, seen: Token) -> Result<Token, BrokerFailure> {
        let requested = Instant::now();
        let mut last = self.last.lock().await;
        if last.watermarks.get(&partition).is_none_or(|token| *token < seen) {
            self.fence_all(&mut last, requested).await?;
        }
        Ok(last.watermarks.get(&partition).copied().unwrap_or_default().max(seen))
    }

    /// Whether the watermark was at least this high after the last fence: then the rewind has been reported.
    pub async fn has_covered(&self, partition: PartitionNo, watermark: Option<Token>) -> bool {
        watermark.is_some() && self.last.lock().await.watermarks.get(&partition).copied() >= watermark
    }

    async fn fence_all(&self, last: &mut LastFence, requested: Instant) -> Result<(), BrokerFailure> {
        if let Some((at, failure)) = &last.failed
            && *at > requested
        {
            return Err(failure.clone());
        }
        // The fence ends the sessions of this instance too, and a claim must not name a session that has ended.
        self.context.producers.end_all().await;
        match self.failures.call(self.context.broker.fence_all()).await {
            Ok(watermarks) => {
                last.watermarks = watermarks;
                Ok(())
            }
            Err(failure) => {
                last.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    fn report(&self, TimelineChange { timeline, complete_until }: &TimelineChange, partitions_behind: u32) {
        let complete_until = time_or_unknown(*complete_until);
        let mut fields = vec![("timeline", timeline.to_string()), ("complete_until", complete_until.clone())];
        if partitions_behind > 0 {
            fields.push(("partitions_behind", partitions_behind.to_string()));
        }
        let event = if partitions_behind == 0 { "store_timeline_changed" } else { "store_rewound" };
        self.context.bus.publish_external(event, fields);
        if partitions_behind == 0 {
            tracing::warn!(
                event = "store_timeline_changed",
                timeline,
                complete_until,
                "the store is on a new timeline after a fail-over or a restore; no watermark is ahead of the store; in at-least-once mode \
                 there are none: after an unplanned fail-over or a restore, orders and events after complete_until may be missing, and events \
                 that were published after it may be published twice"
            );
            return;
        }
        self.context.metrics.outbox_store_rewound_total.inc_by(u64::from(partitions_behind));
        tracing::error!(
            event = "store_rewound",
            timeline,
            complete_until,
            partitions_behind,
            "the store was rewound: the broker has committed batches that the store does not contain; orders after complete_until may \
             be gone, and events that were published after it may be published twice"
        );
    }
}

/// Another instance accepted the timeline and logs the result. If that instance dies first, this line is the only record of the change.
fn report_accepted_elsewhere(TimelineChange { timeline, complete_until }: &TimelineChange) {
    let complete_until = time_or_unknown(*complete_until);
    tracing::warn!(
        event = "store_timeline_accepted_elsewhere",
        timeline,
        complete_until,
        "the store is on a new timeline after a fail-over or a restore, and this instance need not accept it: another instance has, or the \
         timeline has changed once more; the log of the instance that accepts the last one says whether the store was rewound"
    );
}

fn time_or_unknown(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "unknown".to_owned(), rfc3339)
}
