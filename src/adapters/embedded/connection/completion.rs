//! A flag that is raised once, for threads and tasks to wait for.
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// Raised when a thread has finished.
#[derive(Default)]
pub(crate) struct Completion {
    raised: Mutex<bool>,
    threads: Condvar,
    tasks: Notify,
}

impl Completion {
    /// Raises the flag.
    pub(crate) fn raise(&self) {
        *self.raised.lock() = true;
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Waits on this thread; says whether the flag was raised in time.
    pub(crate) fn wait_blocking(&self, limit: Duration) -> bool {
        let mut raised = self.raised.lock();
        if !*raised {
            self.threads.wait_for(&mut raised, limit);
        }
        *raised
    }

    /// Waits in a task; says whether the flag was raised in time.
    pub(crate) async fn wait(&self, limit: Duration) -> bool {
        let raised = async {
            let mut result = std::pin::pin!(self.tasks.notified());
            // Listening begins before the look, or a flag raised in between would be missed.
            result.as_mut().enable();
            if !*self.raised.lock() {
                result.await;
            }
        };
        tokio::time::timeout(limit, raised).await.is_ok()
    }
}

/// Raises a flag however its thread ends.
pub(crate) struct CompleteOnDrop(pub(crate) std::sync::Arc<Completion>);

impl Drop for CompleteOnDrop {
    fn drop(&mut self) {
        self.0.raise();
    }
}
