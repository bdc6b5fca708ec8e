//! A bounded queue whose consumer takes many items at once.
use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Reason for which an item was not accepted.
pub(crate) enum PushError {
    /// The queue has reached its capacity.
    Full,
    /// The queue was closed; it accepts no more items.
    Closed,
}

/// A queue of many producers and few consumers. Producers never wait.
pub(crate) struct Queue<T> {
    state: Mutex<BoundedQueueState<T>>,
    filled: Condvar,
    capacity: usize,
}

struct BoundedQueueState<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    /// An empty queue for at most `capacity` items.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = BoundedQueueState { waiting: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), capacity }
    }

    /// Appends an item, or refuses it at once.
    pub(crate) fn push(&self, item: T) -> Result<(), PushError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        if state.waiting.len() >= self.capacity {
            return Err(PushError::Full);
        }
        state.waiting.push_back(item);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for the first item and takes all that are queued, at most `limit`. Empty only when the queue is closed and has no item left.
    pub(crate) fn take(&self, limit: usize) -> VecDeque<T> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closed {
            self.filled.wait(&mut state);
        }
        if state.waiting.len() <= limit {
            return std::mem::take(&mut state.waiting);
        }
        state.waiting.drain(..limit).collect()
    }

    /// Refuses further items. Queued items can still be taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }

    /// Share of the capacity in use, 0.0..=1.0.
    pub(crate) fn saturation(&self) -> f64 {
        self.state.lock().waiting.len() as f64 / self.capacity.max(1) as f64
    }
}
