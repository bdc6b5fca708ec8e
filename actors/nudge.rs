//! Wake-ups from the write side to the relay: coalesced per partition, and lossy on purpose, for the poll is the safety net.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

use ports::partitions::PartitionNo;
use supervision::Mailbox;

use crate::outbox_publisher::{OutboxPublisher, Wake};

/// Wakes partitions. A partition that was already woken and not yet looked at costs one atomic swap and no message.
#[derive(Clone)]
pub struct Nudge {
    publisher: Mailbox<OutboxPublisher>,
    woken: Arc<[AtomicBool]>,
}

impl Nudge {
    /// Wake-ups for so many partitions.
    pub fn new(publisher: Mailbox<OutboxPublisher>, woken: Arc<[AtomicBool]>) -> Self {
        Self { publisher, woken }
    }

    /// There is something new in this partition.
    pub fn wake(&self, partition: PartitionNo) {
        let Some(flag) = self.woken.get(partition.0 as usize) else { return };
        if !flag.swap(true, AcqRel) && self.publisher.try_send(Wake { partition }).is_err() {
            flag.store(false, std::sync::atomic::Ordering::Release);
        }
    }
}

/// The flags for so many partitions, shared by the publisher (which lowers them) and every nudge.
pub fn flags(partitions: u32) -> Arc<[AtomicBool]> {
    (0..partitions).map(|_| AtomicBool::new(false)).collect()
}
