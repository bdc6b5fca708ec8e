//! A batch's part in a cycle of the publisher.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::UnboundedSender;

/// Held until the batch is settled, or has ended otherwise. The cycle ends with its last ticket, however that is dropped.
#[derive(Clone, Debug)]
pub struct CycleTicket(Arc<OpenCycle>);

#[derive(Debug)]
struct OpenCycle {
    number: u64,
    answered: AtomicBool,
    ended: UnboundedSender<u64>,
}

impl Drop for OpenCycle {
    fn drop(&mut self) {
        // Fails if the publisher has gone.
        let _ = self.ended.send(self.number);
    }
}

impl CycleTicket {
    /// The first ticket of a cycle; its clones are the others. The cycle's number is sent when the last one is dropped.
    pub fn new(number: u64, ended: UnboundedSender<u64>) -> Self {
        Self(Arc::new(OpenCycle { number, answered: AtomicBool::new(false), ended }))
    }

    /// The broker has answered the batch. Returns for the first one of the cycle how many batches it answers now, because most of a cycle
    /// is one transaction, and zero for the others.
    pub fn answered(&self) -> u32 {
        let is_first = !self.0.answered.swap(true, Ordering::Relaxed);
        if is_first { u32::try_from(Arc::strong_count(&self.0)).unwrap_or(u32::MAX) } else { 0 }
    }
}
