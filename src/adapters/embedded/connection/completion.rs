//! A flag that is set once, when a thread ends; threads and tasks wait for it.
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// A flag that is set when a thread has ended.
#[derive(Default)]
pub(crate) struct Completion {
    done: Mutex<bool>,
    threads: Condvar,
    tasks: Notify,
}

impl Completion {
    /// Sets the flag and wakes every waiting thread and task.
    pub(crate) fn set(&self) {
        *self.done.lock() = true;
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Blocks the calling thread for at most `limit`; returns whether the flag was set.
    pub(crate) fn wait_blocking(&self, limit: Duration) -> bool {
        let mut done = self.done.lock();
        if !*done {
            self.threads.wait_for(&mut done, limit);
        }
        *done
    }

    /// Waits for at most `limit`; returns whether the flag was set. Cancel-safe.
    pub(crate) async fn wait(&self, limit: Duration) -> bool {
        let done = async {
            let mut notified = std::pin::pin!(self.tasks.notified());
            // Registered before the flag is read, or a flag set in between would be missed.
            notified.as_mut().enable();
            if !*self.done.lock() {
                notified.await;
            }
        };
        tokio::time::timeout(limit, done).await.is_ok()
    }
}

/// Sets the flag when it is dropped, also when its thread panics.
pub(crate) struct CompleteOnDrop(pub(crate) std::sync::Arc<Completion>);

impl Drop for CompleteOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}
