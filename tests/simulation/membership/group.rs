//! Group: many instances on one lease store, on virtual time, with the order of all steps chosen by a seed.
use std::sync::Arc;
use std::time::Duration;

use app::policy::partition::Rebalance;
use futures::FutureExt;
use kit::clock::{SeededRng, TestClock};
use ports::clock::{Clock, Rng};
use ports::partitions::{AcquireReason, Acquisition, InstanceId, PartitionLeases, PartitionNo, ReleaseOutcome};

use crate::membership::counted_leases::CountedLeases;
use crate::membership::member::{GroupOptions, MemberState, SimulatedMember};
use crate::membership::ownership::{MemberNo, Ownership};
use crate::membership::step_queue::{Entry, Step, StepQueue};

/// Time until a wake-up reaches the other members.
const WAKE_UP: Duration = Duration::from_millis(5);
/// Longest time until a worker that lost its lease runs again: the poll.
const POLL: Duration = Duration::from_secs(1);

/// The members and the store.
pub struct Group {
    pub options: GroupOptions,
    pub clock: TestClock,
    pub store: Arc<CountedLeases>,
    pub members: Vec<SimulatedMember>,
    pub ownership: Ownership,
    steps: StepQueue,
    rng: SeededRng,
    seed: u64,
}

impl Group {
    /// As many members, none of which has joined.
    pub fn new(seed: u64, members: usize, options: GroupOptions) -> Self {
        let clock = TestClock::default();
        let store = Arc::new(CountedLeases::new(clock.clone(), options.partitions));
        let member = |no: usize| {
            // Names in another order than the numbers, as host names are.
            let name = InstanceId(format!("{:04x}-{no}", (no * 40_503) % 65_536).into());
            SimulatedMember::new(name, 0, store.clone(), clock.clone(), &options)
        };
        let members = (0..members).map(member).collect();
        let ownership = Ownership::new(options.partitions, clock.now());
        Self { members, ownership, steps: StepQueue::default(), rng: SeededRng::new(seed), seed, clock, store, options }
    }

    /// A random time below `max`, at least a millisecond.
    pub fn random(&self, max: Duration) -> Duration {
        max.mul_f64(self.rng.fraction()).max(Duration::from_millis(1))
    }

    /// A random number below `limit`.
    pub fn random_below(&self, limit: usize) -> usize {
        (self.rng.next_u64() % limit as u64) as usize
    }

    /// Plans what happens to a member after this time.
    pub fn plan(&mut self, after: Duration, member: MemberNo, step: Step) {
        self.steps.plan(self.clock.now().plus(after), member, None, step);
    }

    /// Runs the group for this much virtual time.
    pub fn advance(&mut self, time: Duration) {
        let until = self.clock.now().plus(time);
        while let Some(entry) = self.steps.next_until(until) {
            self.clock.set(entry.at);
            self.step(entry);
        }
        self.clock.set(until);
    }

    fn step(&mut self, Entry { member, process, step, .. }: Entry) {
        let now = self.clock.now();
        if process.is_some_and(|process| process != self.members[member].process) {
            return;
        }
        if process.is_some() && self.members[member].state == MemberState::Frozen {
            return self.members[member].deferred.push(step);
        }
        match (step, self.members[member].state) {
            (Step::Join, MemberState::Absent) => self.join(member),
            (Step::Stop, MemberState::Running) => self.stop(member),
            (Step::Die, _) => {
                self.ownership.stopped(member, now);
                self.members[member].process += 1;
                self.members[member].state = MemberState::Absent;
            }
            (Step::Freeze, MemberState::Running) => {
                self.ownership.stopped(member, now);
                self.members[member].state = MemberState::Frozen;
            }
            (Step::Resume, MemberState::Frozen) => self.resume(member),
            // A step that was planned for several members has no effect on one that has stopped meanwhile.
            (Step::Join | Step::Stop | Step::Freeze | Step::Resume, _) => {}
            (Step::Heartbeat, _) => {
                let next = self.members[member].membership.next_heartbeat(self.options.heartbeat);
                self.schedule(next, member, Step::Heartbeat);
                self.refresh(member);
            }
            (Step::Refresh, _) => {
                self.members[member].membership.begin_requested_refresh();
                self.refresh(member);
            }
            (Step::Acquire(partition), _) => self.acquire(member, partition),
            (Step::Release(partition), _) => self.release(member, partition),
            (Step::Leave, _) => self.leave(member),
        }
    }

    fn schedule(&mut self, after: Duration, member: MemberNo, step: Step) {
        let process = self.members[member].process;
        self.steps.plan(self.clock.now().plus(after), member, Some(process), step);
    }

    fn join(&mut self, member: MemberNo) {
        let (name, process) = (self.members[member].name.clone(), self.members[member].process + 1);
        let mut started = SimulatedMember::new(name, process, self.store.clone(), self.clock.clone(), &self.options);
        started.state = MemberState::Running;
        self.members[member] = started;
        self.schedule(Duration::ZERO, member, Step::Heartbeat);
    }

    fn resume(&mut self, number: MemberNo) {
        let now = self.clock.now();
        let member = &mut self.members[number];
        member.state = MemberState::Running;
        let (local_leases, deferred) = (Arc::clone(&member.local_leases), std::mem::take(&mut member.deferred));
        self.ownership.resumed(number, now, |partition, epoch| !local_leases.time_left(partition, epoch).is_zero());
        deferred.into_iter().for_each(|step| self.schedule(Duration::ZERO, number, step));
    }

    fn refresh(&mut self, number: MemberNo) {
        let member = &mut self.members[number];
        let workers: Vec<PartitionNo> = member.workers.iter().copied().collect();
        let leaving = member.state == MemberState::Leaving;
        let call = member.membership.refresh((!leaving).then(|| workers.clone()));
        let result = call.now_or_never().expect("no call waits");
        let refresh = result.and_then(|result| member.membership.record_refresh(result));
        let Some(refresh) = refresh.filter(|_| !leaving) else { return };
        let Rebalance { acquire, release, lost } = member.membership.rebalance(&refresh, &workers);
        let idle = member.without_lease();
        member.workers.extend(acquire.iter().copied());
        for (partitions, longest) in [(acquire, self.options.acquire_max), (idle, POLL)] {
            for partition in partitions {
                self.members[number].acquiring.insert(partition);
                self.schedule(self.random(longest), number, Step::Acquire(partition));
            }
        }
        release.into_iter().chain(lost).for_each(|partition| self.hand_over(number, partition));
        if self.members[number].membership.is_first_refresh_of_group() {
            self.refresh_soon(number);
        }
    }

    fn hand_over(&mut self, number: MemberNo, partition: PartitionNo) {
        if self.members[number].membership.begin_handover(partition) {
            self.schedule(self.random(self.options.drain_max), number, Step::Release(partition));
        }
    }

    fn acquire(&mut self, number: MemberNo, partition: PartitionNo) {
        let member = &mut self.members[number];
        member.acquiring.remove(&partition);
        let waits = member.workers.contains(&partition) && member.local_leases.epoch(partition).is_none();
        if member.state != MemberState::Running || !waits || member.membership.is_handing_over(partition) {
            return;
        }
        let (requested, name, ttl) =
            (member.local_leases.request_time(), member.name.clone(), member.local_leases.ttl());
        let call = self.store.acquire(partition, &name, AcquireReason::Unowned, None, ttl);
        match call.now_or_never().expect("no call waits").expect("the store answers") {
            Acquisition::Acquired(acquired) => {
                let (epoch, members) = (acquired.fence.epoch, &self.members);
                members[number].local_leases.record_acquired(partition, epoch, requested);
                self.ownership.acquired(partition, number, epoch, self.clock.now(), |former, epoch| {
                    let former = &members[former];
                    former.state == MemberState::Running && !former.local_leases.time_left(partition, epoch).is_zero()
                });
            }
            Acquisition::TimelineChanged(_) => unreachable!("the reference store has one timeline"),
            Acquisition::Held { .. } => {
                self.hand_over(number, partition);
                self.refresh_soon(number);
            }
        }
    }

    fn release(&mut self, number: MemberNo, partition: PartitionNo) {
        let member = &mut self.members[number];
        let held = member.local_leases.epoch(partition);
        if let Some(epoch) = held {
            let call = self.store.release(partition, &member.name, epoch);
            if call.now_or_never().expect("no call waits").expect("the store answers") == ReleaseOutcome::Done {
                self.ownership.released(partition, self.clock.now());
            }
            member.local_leases.remove(partition, epoch);
        }
        member.workers.remove(&partition);
        member.membership.end_handover(partition);
        if held.is_some() {
            self.notify_others(number);
        }
    }

    fn stop(&mut self, number: MemberNo) {
        self.members[number].state = MemberState::Leaving;
        let workers: Vec<PartitionNo> = self.members[number].workers.iter().copied().collect();
        workers.into_iter().for_each(|partition| self.hand_over(number, partition));
        self.schedule(self.options.drain_max, number, Step::Leave);
    }

    fn leave(&mut self, number: MemberNo) {
        self.members[number].membership.leave().now_or_never().expect("no call waits");
        self.members[number].state = MemberState::Absent;
        self.members[number].process += 1;
        self.notify_others(number);
    }

    /// A partition has no owner any more: every other member receives a wake-up.
    fn notify_others(&mut self, from: MemberNo) {
        for number in 0..self.members.len() {
            if number != from && self.members[number].state == MemberState::Running {
                self.refresh_soon(number);
            }
        }
    }

    fn refresh_soon(&mut self, number: MemberNo) {
        let member = &mut self.members[number];
        if let Some(delay) = member.membership.request_refresh(self.options.heartbeat) {
            self.schedule(WAKE_UP + delay, number, Step::Refresh);
        }
    }

    /// Members in this state.
    pub fn members_in(&self, state: MemberState) -> Vec<MemberNo> {
        (0..self.members.len()).filter(|no| self.members[*no].state == state).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with POSTHASTE_SEED={}", self.seed);
        }
    }
}
