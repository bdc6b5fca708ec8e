//! CycleGuard: keeps a cycle of the publisher open until all of its batches are reported.
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

/// Held until the publisher has the report of the batch. The cycle ends when its last guard is dropped, also by a panic.
#[derive(Clone, Debug)]
pub struct CycleGuard {
    _cycle: Arc<OpenCycle>,
}

#[derive(Debug)]
struct OpenCycle {
    number: u64,
    ended: UnboundedSender<u64>,
}

impl Drop for OpenCycle {
    fn drop(&mut self) {
        // Fails if the publisher has gone.
        let _ = self.ended.send(self.number);
    }
}

impl CycleGuard {
    /// The first guard of a cycle; its clones are the others. The cycle's number is sent when the last one is dropped.
    pub fn new(number: u64, ended: UnboundedSender<u64>) -> Self {
        Self { _cycle: Arc::new(OpenCycle { number, ended }) }
    }
}
