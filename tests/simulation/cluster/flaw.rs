//! Flaws of the simulated store and broker: the simulation must find a violation for each.
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;

/// A rule of PostgreSQL, of Kafka or of their adapters that the simulated part breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A scan begins above rows that a transaction of that time may still commit.
    ScanPassesLateCommitters,
    /// An excluded row does not make the later rows of its key wait.
    ExclusionUnblocksKey,
    /// A settlement closes the open batch, whatever token, owner and epoch it names.
    SettlementIgnoresToken,
    /// A transaction does not contain the watermarks of its batches.
    WatermarkNotWritten,
    /// A writer's transaction holds its keys only until its last statement, not until its commit.
    KeyLockEndsBeforeCommit,
    /// An event whose id was published before is published again.
    EventIdsNotCompared,
    /// The rows of a transaction stay although it was rolled back.
    RollbackKeepsRows,
    /// A rollback to a savepoint undoes the whole transaction, and its commit succeeds.
    SavepointUndoesTransaction,
    /// A fence returns without raising the producer's epoch.
    FenceWithoutEffect,
    /// A resolution reads the watermark while the markers of the fenced producer's last transaction are still being written.
    WatermarkReadTooEarly,
    /// The records of an aborted transaction are visible.
    AbortedRecordsVisible,
    /// Some committed records disappear, as after the election of a leader that does not have them.
    CommittedRecordsLost,
    /// A producer without transactions sends the next record of a key although the brokers have refused the one before.
    KeyGoesOnAfterRefusal,
    /// A producer without transactions sends a record again whose reply it has not received.
    RecordSentTwice,
    /// Consumers receive the records of open and aborted transactions.
    UncommittedRecordsDelivered,
    /// A group member commits the offset of a message when it delivers it.
    OffsetCommittedAtDelivery,
    /// The coordinator accepts the offsets of a partition's former owner.
    FormerOwnerCommits,
    /// The inbox applies an event although it has recorded it before.
    InboxAppliesDuplicates,
    /// The store finds no retry route of a key.
    RetryRoutesNotFound,
}

impl Flaw {
    /// Every flaw, for the test that each is found.
    pub const ALL: [Flaw; 19] = [
        Flaw::ScanPassesLateCommitters,
        Flaw::ExclusionUnblocksKey,
        Flaw::SettlementIgnoresToken,
        Flaw::WatermarkNotWritten,
        Flaw::KeyLockEndsBeforeCommit,
        Flaw::EventIdsNotCompared,
        Flaw::RollbackKeepsRows,
        Flaw::SavepointUndoesTransaction,
        Flaw::FenceWithoutEffect,
        Flaw::WatermarkReadTooEarly,
        Flaw::AbortedRecordsVisible,
        Flaw::CommittedRecordsLost,
        Flaw::KeyGoesOnAfterRefusal,
        Flaw::RecordSentTwice,
        Flaw::UncommittedRecordsDelivered,
        Flaw::OffsetCommittedAtDelivery,
        Flaw::FormerOwnerCommits,
        Flaw::InboxAppliesDuplicates,
        Flaw::RetryRoutesNotFound,
    ];

    /// The mode that the flaw belongs to.
    pub fn mode(self) -> DeliveryGuarantee {
        match self {
            Flaw::KeyGoesOnAfterRefusal | Flaw::RecordSentTwice => DeliveryGuarantee::AtLeastOnce,
            _ => DeliveryGuarantee::ExactlyOnce,
        }
    }

    /// A part of the violation that the flaw causes.
    pub fn expected(self) -> &'static str {
        match self {
            Flaw::ScanPassesLateCommitters
            | Flaw::ExclusionUnblocksKey
            | Flaw::KeyLockEndsBeforeCommit
            | Flaw::KeyGoesOnAfterRefusal => "reordered",
            Flaw::WatermarkNotWritten
            | Flaw::EventIdsNotCompared
            | Flaw::FenceWithoutEffect
            | Flaw::WatermarkReadTooEarly
            | Flaw::AbortedRecordsVisible => "duplicated",
            Flaw::SettlementIgnoresToken => "is SENT, and the broker does not have it",
            Flaw::RollbackKeepsRows => "was published and never committed",
            Flaw::SavepointUndoesTransaction => "was committed and is not in its topic",
            Flaw::CommittedRecordsLost => "is in the store and not in its topic",
            Flaw::RecordSentTwice => "more often than its",
            Flaw::UncommittedRecordsDelivered => "was applied, and the broker has not committed it",
            Flaw::OffsetCommittedAtDelivery => "was neither applied nor is it a dead letter",
            Flaw::FormerOwnerCommits => "which another owns",
            Flaw::InboxAppliesDuplicates => "was applied twice",
            Flaw::RetryRoutesNotFound => "was applied after event",
        }
    }
}
