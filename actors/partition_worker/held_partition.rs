//! HeldPartition: a partition that a worker holds, between two runs. A crash loses nothing of it: an acknowledged batch is still open in the
//! store, and the watermark shows that it was published.
use ports::outbox::Settlement;
use ports::partitions::LeaseFence;

/// A held lease. No batch is open but the one that waits for its settlement.
pub struct HeldPartition {
    /// Owner, epoch and the last known counter.
    pub fence: LeaseFence,
    /// The batch that the broker has acknowledged and the store has not settled.
    pub unsettled: Option<AcknowledgedBatch>,
}

/// A batch that waits for its settlement.
pub struct AcknowledgedBatch {
    /// The settlement that the store has not confirmed.
    pub settlement: Settlement,
    /// Number of rows that the broker acknowledged.
    pub sent: usize,
}
