//! The shared state of one mailbox: the semaphore that bounds it, the outstanding messages, and the time of the last progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::child::in_progress::ActorWork;
use crate::events::observer::Observer;

/// Why a message was not handled: the `reason` of a `message_unhandled` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnhandledReason {
    Closed,
    Overloaded,
    Expired,
}

impl UnhandledReason {
    pub(crate) const ALL: [UnhandledReason; 3] =
        [UnhandledReason::Closed, UnhandledReason::Overloaded, UnhandledReason::Expired];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            UnhandledReason::Closed => "closed",
            UnhandledReason::Overloaded => "overloaded",
            UnhandledReason::Expired => "expired",
        }
    }
}

/// Shared by an actor's mailbox handles, its permits, its task, the snapshot and the watchdog. It outlives every incarnation.
pub(crate) struct MailboxState {
    pub(crate) kind: &'static str,
    pub(crate) capacity: usize,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Set by an operator; cleared by resume, by an exit and by a drain.
    pub(crate) paused: AtomicBool,
    /// The actor ended for good and its mailbox was dropped.
    pub(crate) closed: AtomicBool,
    /// Descriptions of the work that the actor has in progress.
    pub(crate) work: Arc<ActorWork>,
    outstanding: AtomicUsize,
    enqueued: AtomicU64,
    peak: AtomicUsize,
    started: AtomicU64,
    /// Messages that were dropped before a handler began them.
    dropped: AtomicU64,
    /// The actor task that waits in [`MailboxState::is_taken`].
    taken_waker: parking_lot::Mutex<Option<Waker>>,
    created_at: Instant,
    /// Milliseconds from `created_at` to the last progress.
    progress_ms: AtomicU64,
    idle: Notify,
    /// By reason: the number of messages since the last report, and the type of the latest one.
    unhandled: [parking_lot::Mutex<(u64, &'static str)>; 3],
}

impl MailboxState {
    pub(crate) fn new(kind: &'static str, capacity: usize, observer: Arc<dyn Observer>) -> MailboxState {
        MailboxState {
            kind,
            capacity,
            permits: Arc::new(Semaphore::new(capacity)),
            observer,
            paused: false.into(),
            closed: false.into(),
            work: Arc::default(),
            outstanding: 0.into(),
            enqueued: 0.into(),
            peak: 0.into(),
            started: 0.into(),
            dropped: 0.into(),
            taken_waker: parking_lot::Mutex::default(),
            created_at: Instant::now(),
            progress_ms: 0.into(),
            idle: Notify::new(),
            unhandled: Default::default(),
        }
    }

    /// Messages that are queued or in flight.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(SeqCst)
    }

    /// Returns the most messages outstanding since the last call, and starts a new measurement.
    pub(crate) fn take_peak(&self) -> usize {
        let now = self.outstanding();
        self.peak.swap(now, SeqCst).max(now)
    }

    pub(crate) fn record_enqueued(&self, now: Instant) {
        self.enqueued.fetch_add(1, SeqCst);
        let outstanding = self.outstanding.fetch_add(1, SeqCst) + 1;
        self.peak.fetch_max(outstanding, SeqCst);
        if outstanding == 1 {
            self.record_progress(now);
        }
    }

    pub(crate) fn record_released(&self, now: Instant) {
        self.record_progress(now);
        if self.outstanding.fetch_sub(1, SeqCst) == 1 {
            self.idle.notify_waiters();
        }
    }

    /// Counts a message whose handler begins, and returns how many began before it.
    pub(crate) fn record_started(&self) -> u64 {
        self.started.fetch_add(1, SeqCst)
    }

    /// Counts a message that is dropped before a handler began it.
    pub(crate) fn record_dropped(&self) {
        self.dropped.fetch_add(1, SeqCst);
        let waker = self.taken_waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Messages that were ever sent to this mailbox.
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(SeqCst)
    }

    /// Whether the first `enqueued` messages have begun or been dropped. Otherwise a drop wakes the caller, which is the actor task: a
    /// message begins only while that task polls its actor.
    pub(crate) fn is_taken(&self, enqueued: u64, waker: &Waker) -> bool {
        // Registered before the counters are read, so that no drop is missed.
        *self.taken_waker.lock() = Some(waker.clone());
        self.started.load(SeqCst) + self.dropped.load(SeqCst) >= enqueued
    }

    /// Resets the time without progress, which the watchdog measures: a message was finished, or the time until now must not count.
    pub(crate) fn record_progress(&self, now: Instant) {
        let since = now.saturating_duration_since(self.created_at).as_millis();
        self.progress_ms.store(u64::try_from(since).unwrap_or(u64::MAX), SeqCst);
    }

    /// Time since the last progress.
    pub(crate) fn without_progress_for(&self) -> Duration {
        self.created_at.elapsed().saturating_sub(Duration::from_millis(self.progress_ms.load(SeqCst)))
    }

    pub(crate) fn record_unhandled(&self, reason: UnhandledReason, message_type: &'static str) {
        let mut unhandled = self.unhandled[reason as usize].lock();
        *unhandled = (unhandled.0 + 1, message_type);
    }

    /// Messages that were not handled for this reason since the last call, with the type of the latest one.
    pub(crate) fn take_unhandled(&self, reason: UnhandledReason) -> Option<(u64, &'static str)> {
        let unhandled = std::mem::take(&mut *self.unhandled[reason as usize].lock());
        (unhandled.0 > 0).then_some(unhandled)
    }

    /// Resolves when no message is outstanding, and holds new messages back until then. The semaphore is fair: a request for all
    /// permits waits for the requests before it and blocks those behind it.
    pub(crate) async fn drained(self: Arc<Self>) {
        let all = u32::try_from(self.capacity).expect("`actor` refuses a larger capacity");
        if self.permits.acquire_many(all).await.is_ok() {
            return;
        }
        // The semaphore is closed, so no message can arrive: waiting for the last release is enough.
        loop {
            let idle = self.idle.notified();
            if self.outstanding() == 0 {
                return;
            }
            idle.await;
        }
    }
}
