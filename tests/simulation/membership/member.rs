//! SimulatedMember: one instance without actors. Membership, its local leases and its pacing of refreshes are the real ones; a worker is a
//! partition number that waits for its acquisition or its release.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actors::membership::{LocalLeases, Membership};
use kit::clock::TestClock;
use ports::partitions::{InstanceId, PartitionLeases, PartitionNo};

use crate::membership::step_queue::Step;

/// Whether a member runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has not joined yet, died or left.
    Absent,
    Running,
    /// It hands its partitions over before it leaves.
    Leaving,
    /// It does nothing until it is resumed; what it had planned comes late.
    Frozen,
}

/// Limits of a simulated group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    pub partitions: u32,
    pub heartbeat: Duration,
    pub dead_after: Duration,
    pub lease: Duration,
    /// Longest time from the start of a worker to its acquisition.
    pub acquire_max: Duration,
    /// Longest time from the begin of a handover to the release.
    pub drain_max: Duration,
}

/// An instance of the group.
pub struct SimulatedMember {
    pub name: InstanceId,
    pub state: MemberState,
    /// Number of the process; what an earlier process had planned does not happen.
    pub process: u32,
    pub membership: Membership,
    pub local_leases: Arc<LocalLeases>,
    pub workers: BTreeSet<PartitionNo>,
    /// Workers whose acquisition is planned.
    pub acquiring: BTreeSet<PartitionNo>,
    /// The steps that became due while the member was frozen.
    pub deferred: Vec<Step>,
}

impl SimulatedMember {
    /// A process that has not sent a heartbeat yet.
    pub fn new(
        name: InstanceId,
        process: u32,
        leases: Arc<dyn PartitionLeases>,
        clock: TestClock,
        options: &GroupOptions,
    ) -> Self {
        let local_leases = Arc::new(LocalLeases::new(Arc::new(clock), options.lease));
        let membership =
            Membership::new(leases, Arc::clone(&local_leases), name.clone(), options.dead_after, options.partitions);
        Self {
            name,
            state: MemberState::Absent,
            process,
            membership,
            local_leases,
            workers: BTreeSet::new(),
            acquiring: BTreeSet::new(),
            deferred: Vec::new(),
        }
    }

    /// Workers that hold no lease and neither acquire nor hand over.
    pub fn without_lease(&self) -> Vec<PartitionNo> {
        let idle = |no: &&PartitionNo| {
            self.local_leases.epoch(**no).is_none()
                && !self.acquiring.contains(no)
                && !self.membership.is_handing_over(**no)
        };
        self.workers.iter().filter(idle).copied().collect()
    }
}
