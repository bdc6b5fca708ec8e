//! How full an actor is: the semaphore that bounds it, what is outstanding, and when it last finished something.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::options::Observer;

/// Why a message was not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undelivered {
    Closed,
    Overloaded,
    Expired,
}

impl Undelivered {
    pub(crate) const ALL: [Undelivered; 3] = [Undelivered::Closed, Undelivered::Overloaded, Undelivered::Expired];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Undelivered::Closed => "closed",
            Undelivered::Overloaded => "overloaded",
            Undelivered::Expired => "expired",
        }
    }
}

/// Shared by an actor's inbox, its slots, its cell, the snapshot and the watch. Outlives every incarnation.
pub(crate) struct Gauge {
    pub(crate) kind: &'static str,
    pub(crate) capacity: usize,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Set by an operator, cleared by resume, death and drain.
    pub(crate) paused: AtomicBool,
    /// The mailbox is gone for good.
    pub(crate) closed: AtomicBool,
    outstanding: AtomicUsize,
    peak: AtomicUsize,
    opened: AtomicU64,
    born: Instant,
    moved_ms: AtomicU64,
    idle: Notify,
    undelivered: [AtomicU64; 3],
    undelivered_message: parking_lot::Mutex<&'static str>,
}

impl Gauge {
    pub(crate) fn new(kind: &'static str, capacity: usize, observer: Arc<dyn Observer>) -> Gauge {
        Gauge {
            kind,
            capacity,
            slots: Arc::new(Semaphore::new(capacity)),
            observer,
            paused: false.into(),
            closed: false.into(),
            outstanding: 0.into(),
            peak: 0.into(),
            opened: 0.into(),
            born: Instant::now(),
            moved_ms: 0.into(),
            idle: Notify::new(),
            undelivered: Default::default(),
            undelivered_message: parking_lot::Mutex::new(""),
        }
    }

    /// Messages queued or being worked on.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(SeqCst)
    }

    /// Most messages outstanding since the last call.
    pub(crate) fn take_peak(&self) -> usize {
        let now = self.outstanding();
        self.peak.swap(now, SeqCst).max(now)
    }

    pub(crate) fn taken(&self, now: Instant) {
        let outstanding = self.outstanding.fetch_add(1, SeqCst) + 1;
        self.peak.fetch_max(outstanding, SeqCst);
        if outstanding == 1 {
            self.moved(now);
        }
    }

    pub(crate) fn given_back(&self, now: Instant) {
        self.moved(now);
        if self.outstanding.fetch_sub(1, SeqCst) == 1 {
            self.idle.notify_waiters();
        }
    }

    /// How many messages were begun before this one.
    pub(crate) fn begun(&self) -> u64 {
        self.opened.fetch_add(1, SeqCst)
    }

    /// Something was finished, or the clock of the watchdog starts anew.
    pub(crate) fn moved(&self, now: Instant) {
        let since = now.saturating_duration_since(self.born).as_millis();
        self.moved_ms.store(u64::try_from(since).unwrap_or(u64::MAX), SeqCst);
    }

    /// Time since something was last finished.
    pub(crate) fn idle_for(&self) -> Duration {
        self.born.elapsed().saturating_sub(Duration::from_millis(self.moved_ms.load(SeqCst)))
    }

    pub(crate) fn lost(&self, why: Undelivered, message: &'static str) {
        *self.undelivered_message.lock() = message;
        self.undelivered[why as usize].fetch_add(1, SeqCst);
    }

    /// Messages not handled for this reason since the last call, and the type of the latest of any reason.
    pub(crate) fn take_lost(&self, why: Undelivered) -> Option<(u64, &'static str)> {
        let count = self.undelivered[why as usize].swap(0, SeqCst);
        (count > 0).then(|| (count, *self.undelivered_message.lock()))
    }

    /// Resolves when nothing is outstanding, and holds new messages back until then: the semaphore is fair, so a request for all of
    /// its permits waits for those before it and holds up those behind it.
    pub(crate) async fn emptied(self: Arc<Self>) {
        let all = u32::try_from(self.capacity).expect("Inbox refuses a larger capacity");
        if self.slots.acquire_many(all).await.is_ok() {
            return;
        }
        // The inbox is closed: nothing comes in any more, so it is enough to see the last one go.
        loop {
            let idle = self.idle.notified();
            if self.outstanding() == 0 {
                return;
            }
            idle.await;
        }
    }
}
