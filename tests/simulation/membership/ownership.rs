//! Ownership: which member moves the rows of each partition, for how long none did, and whether two ever could.
use std::time::Duration;

use domain::Timestamp;
use ports::partitions::{Epoch, PartitionNo};

/// The number of a simulated member.
pub type MemberNo = usize;

#[derive(Clone, Default)]
struct PartitionHistory {
    owner: Option<(MemberNo, Epoch)>,
    epoch: Epoch,
    idle_since: Option<Timestamp>,
}

/// Owners of all partitions, as the members' calls returned them.
pub struct Ownership {
    partitions: Vec<PartitionHistory>,
    longest_idle: Duration,
    /// Acquisitions by all members since the start.
    pub acquisitions: u64,
}

impl Ownership {
    /// Partitions without an owner since `now`.
    pub fn new(partitions: u32, now: Timestamp) -> Self {
        let free = PartitionHistory { idle_since: Some(now), ..PartitionHistory::default() };
        Self { partitions: vec![free; partitions as usize], longest_idle: Duration::ZERO, acquisitions: 0 }
    }

    /// A member acquired a partition. `runs` returns whether a former owner could still use its lease of this epoch.
    pub fn acquired(
        &mut self,
        partition: PartitionNo,
        member: MemberNo,
        epoch: Epoch,
        now: Timestamp,
        runs: impl FnOnce(MemberNo, Epoch) -> bool,
    ) {
        let history = &mut self.partitions[partition.0 as usize];
        assert!(epoch > history.epoch, "epoch {epoch} of partition {partition} is not above {}", history.epoch);
        if let Some((former, epoch)) = history.owner.filter(|(former, _)| *former != member) {
            assert!(
                !runs(former, epoch),
                "member {member} took partition {partition} from member {former}, which runs"
            );
        }
        (history.owner, history.epoch) = (Some((member, epoch)), epoch);
        self.acquisitions += 1;
        self.end_idle(partition, now);
    }

    /// A member released a partition.
    pub fn released(&mut self, partition: PartitionNo, now: Timestamp) {
        let history = &mut self.partitions[partition.0 as usize];
        (history.owner, history.idle_since) = (None, Some(now));
    }

    /// A member died or froze: its partitions are idle from now on.
    pub fn stopped(&mut self, member: MemberNo, now: Timestamp) {
        for history in self.partitions.iter_mut().filter(|history| history.owner.is_some_and(|(no, _)| no == member)) {
            history.idle_since.get_or_insert(now);
        }
    }

    /// A frozen member runs again: partitions whose lease still runs are no longer idle.
    pub fn resumed(&mut self, member: MemberNo, now: Timestamp, runs: impl Fn(PartitionNo, Epoch) -> bool) {
        for number in 0..self.partitions.len() {
            let partition = PartitionNo(number as u32);
            let owner = self.partitions[number].owner.filter(|(owner, _)| *owner == member);
            if owner.is_some_and(|(_, epoch)| runs(partition, epoch)) {
                self.end_idle(partition, now);
            }
        }
    }

    fn end_idle(&mut self, partition: PartitionNo, now: Timestamp) {
        if let Some(since) = self.partitions[partition.0 as usize].idle_since.take() {
            self.longest_idle = self.longest_idle.max(now.since(since));
        }
    }

    /// The longest time without a running owner since the last call of this function, for partitions that have one now.
    pub fn take_longest_idle(&mut self) -> Duration {
        std::mem::take(&mut self.longest_idle)
    }

    /// How many partitions each of `members` members owns, and how many partitions have no running owner.
    pub fn counts(&self, members: usize) -> (Vec<usize>, usize) {
        let mut counts = vec![0; members];
        for (owner, _) in self.partitions.iter().filter(|history| history.idle_since.is_none()).filter_map(|h| h.owner)
        {
            counts[owner] += 1;
        }
        (counts, self.partitions.iter().filter(|history| history.idle_since.is_some()).count())
    }
}
