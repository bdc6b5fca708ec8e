//! StepQueue: the planned steps of a simulated group's members, by time.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use domain::Timestamp;
use ports::partitions::PartitionNo;

use crate::membership::ownership::MemberNo;

/// Something that happens to a member, or that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A process starts under the member's name.
    Join,
    /// The process is asked to stop.
    Stop,
    /// The process is killed.
    Die,
    /// The process freezes, and may resume later.
    Freeze,
    Resume,
    Heartbeat,
    Refresh,
    Acquire(PartitionNo),
    Release(PartitionNo),
    Leave,
}

/// A planned step. Entries of one moment happen in the order in which they were planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub at: Timestamp,
    sequence: u64,
    pub member: MemberNo,
    /// The process that planned it; `None` for what happens to a member.
    pub process: Option<u32>,
    pub step: Step,
}

/// The planned steps of all members, ordered by time.
#[derive(Default)]
pub struct StepQueue {
    entries: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl StepQueue {
    /// Plans a step at a time, for a process or for whatever process the member then has.
    pub fn plan(&mut self, at: Timestamp, member: MemberNo, process: Option<u32>, step: Step) {
        self.sequence += 1;
        self.entries.push(Reverse(Entry { at, sequence: self.sequence, member, process, step }));
    }

    /// Removes the next step, if it is due.
    pub fn next_until(&mut self, until: Timestamp) -> Option<Entry> {
        self.entries.peek().filter(|Reverse(entry)| entry.at <= until)?;
        self.entries.pop().map(|Reverse(entry)| entry)
    }
}
