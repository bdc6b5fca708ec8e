//! A bounded queue whose taker takes many at once.
use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Why something was not put into a queue.
pub(crate) enum Refused {
    /// It holds as much as it may.
    Full,
    /// Nobody takes from it any more.
    Closed,
}

/// Many put, few take; putting never waits.
pub(crate) struct Queue<T> {
    inside: Mutex<Inside<T>>,
    filled: Condvar,
    capacity: usize,
}

struct Inside<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    /// An empty queue for so many things.
    pub(crate) fn new(capacity: usize) -> Self {
        let inside = Inside { waiting: VecDeque::new(), closed: false };
        Self { inside: Mutex::new(inside), filled: Condvar::new(), capacity }
    }

    /// Puts one thing in, at once or not at all.
    pub(crate) fn put(&self, thing: T) -> Result<(), Refused> {
        let mut inside = self.inside.lock();
        if inside.closed {
            return Err(Refused::Closed);
        }
        if inside.waiting.len() >= self.capacity {
            return Err(Refused::Full);
        }
        inside.waiting.push_back(thing);
        drop(inside);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for the first thing and takes all that wait, at most `most`. Nothing means closed and empty.
    pub(crate) fn take(&self, most: usize) -> VecDeque<T> {
        let mut inside = self.inside.lock();
        while inside.waiting.is_empty() && !inside.closed {
            self.filled.wait(&mut inside);
        }
        if inside.waiting.len() <= most {
            return std::mem::take(&mut inside.waiting);
        }
        inside.waiting.drain(..most).collect()
    }

    /// Refuses whatever comes from now on; what waits will still be taken.
    pub(crate) fn close(&self) {
        self.inside.lock().closed = true;
        self.filled.notify_all();
    }

    /// How full it is, 0.0..=1.0.
    pub(crate) fn fill(&self) -> f64 {
        self.inside.lock().waiting.len() as f64 / self.capacity.max(1) as f64
    }
}
