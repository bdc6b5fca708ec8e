//! The messages that the publisher receives.
use std::time::Duration;

use actix::prelude::*;
use ports::Error;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeUp;

/// A partition has new rows. May be lost: the poll finds the rows, too.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake {
    /// The partition of the rows.
    pub partition: PartitionNo,
}

/// The schedule may have work that can start.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RunDue;

/// Every batch of the cycle with this number has ended: its worker has reported it, or has died. The next cycle settles the acknowledged ones.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CycleEnded(pub u64);

/// Other instances notify of new rows, or of partitions without an owner.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PeersNotified(pub Vec<WakeUp>);

/// Before the tree stops: start no batch, hand all partitions over, leave. Returns the partitions that could not be handed over, with the errors.
#[derive(Message)]
#[rtype(result = "Vec<(PartitionNo, Error)>")]
pub struct Retire {
    /// Longest wait for each handover; they run in parallel.
    pub deadline: Duration,
}
