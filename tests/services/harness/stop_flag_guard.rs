//! StopFlagGuard: sets the stop flag of threads when it is dropped.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Sets the flag when it is dropped, also by a failed assertion: a scope waits for its threads.
pub struct StopFlagGuard<'a>(pub &'a AtomicBool);

impl Drop for StopFlagGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
