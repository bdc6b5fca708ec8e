//! Membership: this instance's heartbeat, the renewal of its leases, and which partitions it should take or hand over.
//!
//! A heartbeat is two statements: the heartbeat, which returns this instance's rank among the live ones, and the renewal. An instance that
//! holds fewer leases than its quota surveys all leases with a third one.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use app::policy::partition::{Holdings, Rebalance, balance, needs_survey};
use ports::Error;
use ports::partitions::{InstanceId, InstanceRank, LeaseSurvey, PartitionLeases, PartitionNo};
use tokio::sync::Semaphore;

use crate::partition_worker::local_leases::LocalLeases;

/// A free partition is overdue after this share of `dead_after`: a quarter, by default a little more than a heartbeat.
const OVERDUE_SHARE: u32 = 4;

/// Least time between two refreshes that no heartbeat makes: 300 ms, so that many moves of partitions become one refresh.
const REFRESH_SPACING: Duration = Duration::from_millis(300);
/// Most instances that refresh in one such interval: 16, so that a move in a large group costs its store 53 refreshes a second instead of one
/// for each instance.
const REFRESHES_AT_ONCE: u32 = 16;

/// When the instance of this rank refreshes its membership because partitions moved. `None`: its next heartbeat comes first.
fn refresh_delay(rank: u32, heartbeat: Duration) -> Option<Duration> {
    let delay = REFRESH_SPACING * (1 + rank / REFRESHES_AT_ONCE);
    (delay < heartbeat || rank < REFRESHES_AT_ONCE).then_some(delay)
}

/// The membership of this instance. All of its state can be read again from the store.
pub struct Membership {
    ports: MembershipPorts,
    /// As the last heartbeat returned it.
    rank: InstanceRank,
    heartbeats: u64,
    /// Number of refreshes that succeeded.
    refreshes: u64,
    /// Whether the timer of a refresh before the next heartbeat is set.
    is_refresh_requested: bool,
    /// Partitions that are being handed over; the publisher starts no batch for them.
    handing_over: BTreeSet<PartitionNo>,
    store_is_down: bool,
    /// Whether the last refresh found locked lease rows.
    rows_are_locked: bool,
}

/// The part that a running refresh needs.
#[derive(Clone)]
struct MembershipPorts {
    leases: Arc<dyn PartitionLeases>,
    local_leases: Arc<LocalLeases>,
    instance: InstanceId,
    dead_after: Duration,
    partitions: u32,
    /// One refresh at a time, and none after this instance has left: it would register the instance again, and the others would wait until it
    /// counts as dead.
    turn: Arc<Semaphore>,
}

/// Result of a refresh.
#[derive(Debug)]
pub struct RefreshResult {
    rank: InstanceRank,
    /// Partitions whose leases were not renewed, because another transaction has locked their rows.
    locked: Vec<PartitionNo>,
    survey: Option<LeaseSurvey>,
}

/// Deletes the membership of an instance that sends no heartbeat any more.
pub async fn delete_membership(leases: &dyn PartitionLeases, instance: &InstanceId) {
    if let Err(error) = leases.leave(instance).await {
        tracing::debug!(event = "leave_failed", error = %error, "the membership could not be deleted; other instances notice after partitions.dead_after");
    }
}

/// The numbers of partitions, as the field `partitions` of a log event lists them.
pub fn partition_list<'a>(partitions: impl IntoIterator<Item = &'a PartitionNo>) -> String {
    partitions.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl Membership {
    /// The membership of this instance, which has not sent a heartbeat yet.
    pub fn new(
        leases: Arc<dyn PartitionLeases>,
        local_leases: Arc<LocalLeases>,
        instance: InstanceId,
        dead_after: Duration,
        partitions: u32,
    ) -> Self {
        let turn = Arc::new(Semaphore::new(1));
        let ports = MembershipPorts { leases, local_leases, instance, dead_after, partitions, turn };
        let rank = InstanceRank { rank: 0, live: 1 };
        Self {
            ports,
            rank,
            heartbeats: 0,
            refreshes: 0,
            is_refresh_requested: false,
            handing_over: BTreeSet::new(),
            store_is_down: false,
            rows_are_locked: false,
        }
    }

    /// Time until the next heartbeat. It is shorter once, by the instance's rank: instances that started together then send their heartbeats
    /// one after the other.
    pub fn next_heartbeat(&mut self, interval: Duration) -> Duration {
        self.heartbeats += 1;
        let InstanceRank { rank, live } = self.rank;
        if self.heartbeats == 2 { interval * live.saturating_sub(rank).max(1) / live.max(1) } else { interval }
    }

    /// Sends a heartbeat, renews the leases and, where this instance lacks partitions, surveys the leases. `workers` are the partitions that
    /// have a worker here; `None` if this instance takes none any more. Resolves to `None` after this instance has left.
    pub fn refresh(
        &self,
        workers: Option<Vec<PartitionNo>>,
    ) -> impl Future<Output = Option<Result<RefreshResult, Error>>> + use<> {
        let ports = self.ports.clone();
        async move {
            let _turn = ports.turn.acquire().await.ok()?;
            Some(ports.refresh(workers).await)
        }
    }

    /// Leaves the group: waits for a running refresh, and no other one follows.
    pub fn leave(&self) -> impl Future<Output = ()> + use<> {
        let MembershipPorts { leases, instance, turn, .. } = self.ports.clone();
        async move {
            let _turn = turn.acquire().await;
            turn.close();
            delete_membership(&*leases, &instance).await;
        }
    }

    /// Requests a refresh before the next heartbeat; all partition moves until then share it. Returns the delay of the timer that the caller must
    /// set; `None` if one is set already, or if the next heartbeat comes first.
    pub fn request_refresh(&mut self, heartbeat: Duration) -> Option<Duration> {
        let delay = refresh_delay(self.rank.rank, heartbeat)?;
        (!std::mem::replace(&mut self.is_refresh_requested, true)).then_some(delay)
    }

    /// Records that the timer of the requested refresh has fired: the next request sets one again.
    pub fn begin_requested_refresh(&mut self) {
        self.is_refresh_requested = false;
    }

    /// Records the result of a refresh: the rank, and whether the store answers. Logs when the store stops to answer or lease rows become
    /// locked, not every failed heartbeat.
    pub fn record_refresh(&mut self, result: Result<RefreshResult, Error>) -> Option<RefreshResult> {
        match result {
            Ok(refresh) => {
                self.store_is_down = false;
                self.log_locked(&refresh.locked);
                self.rank = refresh.rank;
                self.refreshes += 1;
                Some(refresh)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.store_is_down, true) {
                    tracing::warn!(event = "heartbeat_failed", error = %error, "the heartbeat failed; held leases stay valid until they expire: {error}");
                }
                None
            }
        }
    }

    fn log_locked(&mut self, locked: &[PartitionNo]) {
        if !std::mem::replace(&mut self.rows_are_locked, !locked.is_empty()) && !locked.is_empty() {
            let partitions = partition_list(locked);
            tracing::warn!(
                event = "leases_locked",
                partitions,
                "another transaction has locked the leases of the partitions {partitions}: they are not renewed before it ends, and may expire"
            );
        }
    }

    /// Which partitions to take and to hand over, given those that have a worker here now.
    pub fn rebalance(&self, refresh: &RefreshResult, workers: &[PartitionNo]) -> Rebalance {
        let MembershipPorts { local_leases, instance, dead_after, partitions, .. } = &self.ports;
        let workers = workers.iter().copied().collect();
        let leased = local_leases.held().into_iter().map(|(partition, _)| partition).collect();
        let holdings = Holdings { workers: &workers, leased: &leased };
        let mut balance = balance(
            *partitions,
            instance,
            refresh.rank,
            holdings,
            refresh.survey.as_ref(),
            *dead_after / OVERDUE_SHARE,
        );
        if self.is_first_refresh_of_group() {
            let own = refresh.survey.as_ref().map_or(&[][..], |survey| &survey.own);
            balance.acquire.retain(|partition| own.contains(partition));
        }
        balance
    }

    /// Whether the last refresh was the first one, in a group of several. Instances that start together then still see different groups, and
    /// would reach for the same partitions: free ones are taken from the next refresh on.
    pub fn is_first_refresh_of_group(&self) -> bool {
        self.refreshes == 1 && self.rank.live > 1
    }

    /// The rank of this instance among the live ones, from its last heartbeat.
    pub fn rank(&self) -> InstanceRank {
        self.rank
    }

    /// Begins to hand a partition over. Returns false if that is already under way.
    pub fn begin_handover(&mut self, partition: PartitionNo) -> bool {
        self.handing_over.insert(partition)
    }

    /// The handover ended, whether the partition was released or not.
    pub fn end_handover(&mut self, partition: PartitionNo) {
        self.handing_over.remove(&partition);
    }

    /// Whether the partition is being handed over.
    pub fn is_handing_over(&self, partition: PartitionNo) -> bool {
        self.handing_over.contains(&partition)
    }

    /// Whether this instance holds the lease of a partition, as far as it knows: by [`LocalLeases`].
    pub fn holds_lease(&self, partition: PartitionNo) -> bool {
        self.ports.local_leases.epoch(partition).is_some()
    }

    /// How many leases this instance holds, as far as it knows.
    pub fn lease_count(&self) -> usize {
        self.ports.local_leases.held().len()
    }
}

impl MembershipPorts {
    async fn refresh(&self, workers: Option<Vec<PartitionNo>>) -> Result<RefreshResult, Error> {
        let Self { leases, local_leases, instance, dead_after, partitions, .. } = self;
        let rank = leases.heartbeat(instance, *dead_after).await?;
        let (requested, held, mut locked) = (local_leases.request_time(), local_leases.held(), Vec::new());
        if !held.is_empty() {
            let renewal = leases.renew(instance, &held, local_leases.ttl()).await?;
            local_leases.apply_renewal(requested, &held, &renewal);
            locked = renewal.locked;
        }
        // A lease without a worker does not count: the worker of an earlier publisher held it.
        let leased = workers.map(|workers| workers.iter().filter(|no| local_leases.epoch(**no).is_some()).count());
        let survey = match leased {
            Some(leased) if needs_survey(*partitions, rank, leased) => Some(leases.survey(instance).await?),
            _ => None,
        };
        Ok(RefreshResult { rank, locked, survey })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshes_for_moved_partitions_are_spread_by_rank_and_end_at_the_heartbeat() {
        let heartbeat = Duration::from_secs(3);
        let delays = [0, 15, 16, 143, 144].map(|rank| refresh_delay(rank, heartbeat).map(|delay| delay.as_millis()));

        assert_eq!(delays, [Some(300), Some(300), Some(600), Some(2_700), None]);
        assert_eq!(
            refresh_delay(3, REFRESH_SPACING / 3),
            Some(REFRESH_SPACING),
            "a small group does not rely on its heartbeats"
        );
    }
}
