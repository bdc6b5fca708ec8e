//! SpanQueue: a bounded, lossy queue between the components that record spans and the thread that exports them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntCounter;

use super::span_data::SpanData;

/// Most spans of one request: some 400 KB of JSON, well below the 4 MiB that collectors accept.
const BATCH_MAX: usize = 512;

/// The queue. Adding a span never waits for the exporter.
pub(super) struct SpanQueue {
    state: Mutex<QueuedSpans>,
    changed: Condvar,
    capacity: usize,
    /// Spans that found the queue full or closed.
    dropped: IntCounter,
}

#[derive(Default)]
struct QueuedSpans {
    spans: VecDeque<SpanData>,
    /// Set when the process stops: until then the exporter may send the queued spans.
    closes_at: Option<Instant>,
}

impl SpanQueue {
    /// An open queue for at most `capacity` spans.
    pub(super) fn new(capacity: usize, dropped: IntCounter) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), capacity, dropped }
    }

    fn lock(&self) -> MutexGuard<'_, QueuedSpans> {
        // No code that holds the lock can panic between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a span, or drops and counts it.
    pub(super) fn push(&self, span: SpanData) {
        let mut state = self.lock();
        if state.closes_at.is_some() || state.spans.len() >= self.capacity {
            self.dropped.inc();
            return;
        }
        state.spans.push_back(span);
        let count = state.spans.len();
        drop(state);
        // Between these two numbers the exporter waits for its linger time only: a wake-up for each span would be wasted.
        if count == 1 || count == BATCH_MAX {
            self.changed.notify_one();
        }
    }

    /// Waits for a span, then until there are enough for a request or `linger` has passed. Returns nothing once the queue is closed and empty.
    pub(super) fn next_batch(&self, linger: Duration) -> Vec<SpanData> {
        let is_idle = |state: &mut QueuedSpans| state.spans.is_empty() && state.closes_at.is_none();
        let is_short = |state: &mut QueuedSpans| state.spans.len() < BATCH_MAX && state.closes_at.is_none();
        let state = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, linger, is_short);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let count = state.spans.len().min(BATCH_MAX);
        state.spans.drain(..count).collect()
    }

    /// Waits for a time, or until the queue is closed.
    pub(super) fn pause(&self, time: Duration) {
        let is_open = |state: &mut QueuedSpans| state.closes_at.is_none();
        // Both ends of the wait mean the same to the exporter: it then reads the time that is left.
        drop(self.changed.wait_timeout_while(self.lock(), time, is_open));
    }

    /// Refuses further spans; those in the queue can be sent until this time. Further calls change nothing.
    pub(super) fn close(&self, at: Instant) {
        self.lock().closes_at.get_or_insert(at);
        self.changed.notify_all();
    }

    /// The time that the exporter has left; `None` while the queue is open.
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.lock().closes_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}
