//! A bounded queue whose taker takes many at once.
use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Why something was not put into a queue.
pub(crate) enum PushError {
    /// It holds as much as it may.
    Full,
    /// Nobody takes from it any more.
    Closed,
}

/// Many put, few take; putting never waits.
pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    filled: Condvar,
    capacity: usize,
}

struct QueueState<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    /// An empty queue for so many things.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = QueueState { waiting: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), capacity }
    }

    /// Puts one thing in, at once or not at all.
    pub(crate) fn put(&self, item: T) -> Result<(), PushError> {
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

    /// Waits for the first thing and takes all that wait, at most `most`. Nothing means closed and empty.
    pub(crate) fn take(&self, most: usize) -> VecDeque<T> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closed {
            self.filled.wait(&mut state);
        }
        if state.waiting.len() <= most {
            return std::mem::take(&mut state.waiting);
        }
        state.waiting.drain(..most).collect()
    }

    /// Refuses whatever comes from now on; what waits will still be taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }

    /// How full it is, 0.0..=1.0.
    pub(crate) fn fill(&self) -> f64 {
        self.state.lock().waiting.len() as f64 / self.capacity.max(1) as f64
    }
}
