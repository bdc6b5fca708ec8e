//! The end of threads that work until a flag is set.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Sets the flag when it is dropped, also by a failed assertion: a scope waits for its threads.
pub struct EndOfThreads<'a>(pub &'a AtomicBool);

impl Drop for EndOfThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
