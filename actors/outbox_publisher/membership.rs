//! Membership: this instance's heartbeat, the renewal of its leases, and which partitions it should take or hand over.
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use app::policy::partition::{Balance, balance};
use domain::Timestamp;
use ports::Error;
use ports::partitions::{InstanceId, MemberView, PartitionLeases, PartitionNo, PartitionView};
use tokio::sync::Semaphore;

use crate::partition_worker::lease_book::LeaseBook;

/// Everything here can be read again from the store.
pub struct Membership {
    ports: MembershipPorts,
    partitions: u32,
    /// Partitions that are being handed over: they do not run any more.
    handing_over: BTreeSet<PartitionNo>,
    store_is_down: bool,
}

/// The part that a running scan needs.
#[derive(Clone)]
struct MembershipPorts {
    leases: Arc<dyn PartitionLeases>,
    book: Arc<LeaseBook>,
    instance: InstanceId,
    dead_after: Duration,
    /// One scan at a time, and none after this instance has left: it would register the instance again, and the others would wait until it
    /// counts as dead.
    turn: Arc<Semaphore>,
}

/// Members and partitions as a heartbeat found them.
pub struct LeaseScan {
    members: Vec<MemberView>,
    partitions: Vec<PartitionView>,
}

/// What a scan asks this instance to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rebalance {
    /// Partitions that need a worker.
    pub take: Vec<PartitionNo>,
    /// Partitions to hand over.
    pub give: Vec<PartitionNo>,
}

impl Membership {
    /// The membership of this instance, which has not sent a heartbeat yet.
    pub fn new(
        leases: Arc<dyn PartitionLeases>,
        book: Arc<LeaseBook>,
        instance: InstanceId,
        dead_after: Duration,
        partitions: u32,
    ) -> Self {
        let turn = Arc::new(Semaphore::new(1));
        let ports = MembershipPorts { leases, book, instance, dead_after, turn };
        Self { ports, partitions, handing_over: BTreeSet::new(), store_is_down: false }
    }

    /// Sends a heartbeat, renews the leases and reads who holds what. Resolves to `None` after this instance has left.
    pub fn scan(&self) -> impl Future<Output = Option<Result<LeaseScan, Error>>> + use<> {
        let ports = self.ports.clone();
        async move {
            let _turn = ports.turn.acquire().await.ok()?;
            Some(ports.scan().await)
        }
    }

    /// Leaves the group: waits for a running scan, and no other one follows.
    pub fn leave(&self) -> impl Future<Output = ()> + use<> {
        let MembershipPorts { leases, instance, turn, .. } = self.ports.clone();
        async move {
            let _turn = turn.acquire().await;
            turn.close();
            if let Err(error) = leases.leave(&instance).await {
                tracing::debug!(event = "leave_failed", error = %error, "the other instances will see this one expire");
            }
        }
    }

    /// Unwraps a scan. Logs when the store stops to answer, not every failed heartbeat.
    pub fn accept(&mut self, scan: Result<LeaseScan, Error>) -> Option<LeaseScan> {
        match scan {
            Ok(scan) => {
                self.store_is_down = false;
                Some(scan)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.store_is_down, true) {
                    tracing::warn!(event = "heartbeat_failed", error = %error, "the store does not answer; leases run on until they expire");
                }
                None
            }
        }
    }

    /// Which partitions to take and to hand over, given those that have a worker here.
    pub fn rebalance(&self, scan: &LeaseScan, workers: &[PartitionNo]) -> Rebalance {
        scan.rebalance(&self.ports.instance, self.partitions, workers)
    }

    /// Begins to hand a partition over. Returns false if that is already under way.
    pub fn begin_hand_over(&mut self, partition: PartitionNo) -> bool {
        self.handing_over.insert(partition)
    }

    /// The hand-over ended, whether the partition was released or not.
    pub fn end_hand_over(&mut self, partition: PartitionNo) {
        self.handing_over.remove(&partition);
    }

    /// Whether the partition is being handed over.
    pub fn is_handing_over(&self, partition: PartitionNo) -> bool {
        self.handing_over.contains(&partition)
    }

    /// How many leases this instance holds, by its own count.
    pub fn owned(&self) -> usize {
        self.ports.book.held().len()
    }
}

impl MembershipPorts {
    async fn scan(&self) -> Result<LeaseScan, Error> {
        let Self { leases, book, instance, dead_after, .. } = self;
        let members = leases.heartbeat(instance, *dead_after).await?;
        let (requested, held) = (book.request_time(), book.held());
        if !held.is_empty() {
            let still_ours = leases.renew(instance, &held, book.ttl()).await?;
            book.renewed(requested, &held, &still_ours);
        }
        let partitions = leases.overview().await?;
        Ok(LeaseScan { members, partitions })
    }
}

impl LeaseScan {
    /// The fair share of `us`. The partition of a worker is given up as well if another live instance holds it: that worker cannot acquire
    /// the lease, and would count as a part of this instance's share.
    fn rebalance(&self, us: &InstanceId, partitions: u32, workers: &[PartitionNo]) -> Rebalance {
        let live: HashSet<&InstanceId> =
            self.members.iter().filter(|member| member.alive).map(|member| &member.instance).collect();
        let theirs = self.held_by_others(us, &live);
        let (lost, held): (BTreeSet<_>, BTreeSet<_>) = workers.iter().partition(|no| theirs.contains(no));
        let Balance { take, mut give } = balance(partitions, live.len(), &held, &theirs);
        give.extend(lost);
        Rebalance { take, give }
    }

    /// Partitions that another live instance holds. An expired lease does not count: its owner may live and have its share elsewhere.
    fn held_by_others(&self, us: &InstanceId, live: &HashSet<&InstanceId>) -> BTreeSet<PartitionNo> {
        // The heartbeat has just written our row: its time is the store's time.
        let now = self.members.iter().find(|member| member.instance == *us).map_or(Timestamp::default(), |m| m.seen_at);
        let held_by_other = |view: &&PartitionView| {
            let other = view.owner.as_ref().is_some_and(|owner| owner != us && live.contains(owner));
            other && view.expires_at.is_some_and(|until| until > now)
        };
        self.partitions.iter().filter(held_by_other).map(|view| view.partition).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn member(name: &str, alive: bool) -> MemberView {
        MemberView { instance: InstanceId(name.into()), alive, seen_at: Timestamp::from_millis(NOW) }
    }

    fn held(partition: u32, owner: &str, remaining_ms: i64) -> PartitionView {
        PartitionView {
            partition: PartitionNo(partition),
            owner: Some(InstanceId(owner.into())),
            epoch: 1,
            counter: 0,
            in_flight: None,
            expires_at: Some(Timestamp::from_millis(NOW + remaining_ms)),
            depth: 0,
        }
    }

    fn rebalance(members: Vec<MemberView>, partitions: Vec<PartitionView>, workers: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let workers: Vec<PartitionNo> = workers.iter().copied().map(PartitionNo).collect();
        let Rebalance { take, give } =
            LeaseScan { members, partitions }.rebalance(&InstanceId("us".into()), 4, &workers);
        let numbers = |partitions: Vec<PartitionNo>| partitions.into_iter().map(|no| no.0).collect();
        (numbers(take), numbers(give))
    }

    #[test]
    fn free_partitions_are_taken_up_to_the_fair_share() {
        let members = vec![member("us", true), member("other", true)];
        assert_eq!(rebalance(members, vec![held(0, "other", 1)], &[]), (vec![1, 2], vec![]));
    }

    #[test]
    fn surplus_is_handed_over_when_another_instance_joins() {
        let members = vec![member("us", true), member("other", true)];
        assert_eq!(rebalance(members, vec![], &[0, 1, 2]), (vec![], vec![2]));
    }

    #[test]
    fn an_expired_lease_and_the_lease_of_a_dead_instance_are_free() {
        let members = vec![member("us", true), member("other", true), member("dead", false)];
        let partitions = vec![held(0, "other", 0), held(1, "dead", 1)];
        assert_eq!(rebalance(members, partitions, &[]), (vec![0, 1], vec![]));
    }

    #[test]
    fn worker_of_a_partition_that_another_instance_holds_is_no_share() {
        let members = vec![member("us", true), member("other", true)];
        assert_eq!(rebalance(members, vec![held(0, "other", 1)], &[0, 1]), (vec![2], vec![0]));
    }
}
