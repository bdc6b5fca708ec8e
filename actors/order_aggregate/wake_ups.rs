//! WakeUps: notifies the publisher of new rows. One message per partition at a time, and lossy on purpose: the publisher polls, too.
use ports::partitions::PartitionNo;
use supervision::Mailbox;

use crate::outbox_publisher::OutboxPublisher;
use crate::outbox_publisher::dirty_partitions::DirtyPartitions;
use crate::outbox_publisher::messages::Wake;

/// Sends wake-ups to the publisher. For a partition with a wake-up on its way it costs one atomic swap.
#[derive(Clone)]
pub struct WakeUps {
    publisher: Mailbox<OutboxPublisher>,
    dirty: DirtyPartitions,
}

impl WakeUps {
    /// Wake-ups for this publisher, which clears the flags.
    pub fn new(publisher: Mailbox<OutboxPublisher>, dirty: DirtyPartitions) -> Self {
        Self { publisher, dirty }
    }

    /// Notifies the publisher of new rows in this partition; never waits.
    pub fn wake(&self, partition: PartitionNo) {
        if self.dirty.mark(partition) && self.publisher.try_send(Wake { partition }).is_err() {
            self.dirty.clear(partition);
        }
    }
}
