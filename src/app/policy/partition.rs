//! Assignment of partitions to instances: the quota of an instance, and which free partitions it takes. The partition of a
//! key is a rule of crate `outbox`.
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use ports::partitions::{FreePartition, InstanceId, InstanceRank, LeaseSurvey, PartitionNo};

/// The number of partitions of an instance: ⌊P / live⌋, and one more for the first P mod live instances. The quotas of all instances add up
/// to P. When one instance joins or leaves, only its own partitions move.
pub fn quota(partitions: u32, InstanceRank { rank, live }: InstanceRank) -> usize {
    let live = live.max(1);
    (partitions / live + u32::from(rank < partitions % live)) as usize
}

/// The partitions of one instance, as far as it knows.
#[derive(Clone, Copy, Debug)]
pub struct Holdings<'a> {
    /// Partitions that have a worker here.
    pub workers: &'a BTreeSet<PartitionNo>,
    /// Partitions whose lease this instance holds.
    pub leased: &'a BTreeSet<PartitionNo>,
}

/// The partitions that an instance should acquire and release now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebalance {
    /// Partitions to acquire, up to the quota.
    pub acquire: Vec<PartitionNo>,
    /// Surplus partitions to drain and release.
    pub release: Vec<PartitionNo>,
    /// Partitions with a worker here that another live instance holds: their workers stop.
    pub lost: Vec<PartitionNo>,
}

/// Whether an instance has to survey the leases before it balances: it holds fewer than its quota.
pub fn needs_survey(partitions: u32, rank: InstanceRank, leased: usize) -> bool {
    leased < quota(partitions, rank)
}

/// Releases the partitions that `instance` holds beyond its quota or, with a survey, acquires partitions up to it. A partition that has been free
/// for `overdue` comes first for every instance.
pub fn balance(
    partitions: u32,
    instance: &InstanceId,
    rank: InstanceRank,
    Holdings { workers, leased }: Holdings<'_>,
    survey: Option<&LeaseSurvey>,
    overdue: Duration,
) -> Rebalance {
    let quota = quota(partitions, survey.and_then(|survey| surveyed_rank(survey, instance)).unwrap_or(rank));
    let lost = survey.map_or_else(BTreeSet::new, |survey| held_elsewhere(survey, workers, leased));
    let kept = workers.len() - lost.len();
    let mut balance = Rebalance { lost: lost.iter().copied().collect(), ..Rebalance::default() };
    if kept > quota {
        // A worker without a lease has nothing to drain.
        let mut order: Vec<_> = workers.difference(&lost).copied().collect();
        order.sort_by_key(|no| (leased.contains(no), std::cmp::Reverse(*no)));
        order.truncate(kept - quota);
        balance.release = order;
    } else if let Some(survey) = survey {
        // The leases of an earlier process of this instance come first: no other instance can take them.
        let own = survey.own.iter().copied().chain(free_in_acquisition_order(partitions, instance, survey, overdue));
        balance.acquire = own.filter(|no| !workers.contains(no)).take(quota - kept).collect();
    }
    balance
}

fn surveyed_rank(survey: &LeaseSurvey, instance: &InstanceId) -> Option<InstanceRank> {
    let rank = survey.members.iter().position(|member| member.instance == *instance)?;
    Some(InstanceRank { rank: rank as u32, live: survey.members.len() as u32 })
}

/// Partitions with a worker that another instance holds. A lease that this instance acquired since the survey is its own.
fn held_elsewhere(
    survey: &LeaseSurvey,
    workers: &BTreeSet<PartitionNo>,
    leased: &BTreeSet<PartitionNo>,
) -> BTreeSet<PartitionNo> {
    let free: HashSet<PartitionNo> = survey.free.iter().map(|free| free.partition).collect();
    let here = |no: &PartitionNo| leased.contains(no) || survey.own.contains(no) || free.contains(no);
    workers.iter().copied().filter(|no| !here(no)).collect()
}

/// The free partitions in the order in which `instance` acquires them. Instances below their quota begin at different places of the list: in the
/// order of their ranks, each after a part of the list in proportion to the partitions that the instances before it lack. So instances that read the
/// same survey acquire different partitions, unless some still hold a surplus. A partition that has been free for `overdue` comes first for every
/// instance, because the instance that should have acquired it has not.
fn free_in_acquisition_order(
    partitions: u32,
    instance: &InstanceId,
    survey: &LeaseSurvey,
    overdue: Duration,
) -> impl Iterator<Item = PartitionNo> {
    let live = survey.members.len() as u32;
    let (mut before, mut total) = (0, 0);
    for (rank, member) in (0..).zip(&survey.members) {
        if member.instance == *instance {
            before = total;
        }
        total += quota(partitions, InstanceRank { rank, live }).saturating_sub(member.held as usize);
    }
    let from_own_offset = move |free: &[FreePartition]| {
        let numbers: Vec<PartitionNo> = free.iter().map(|free| free.partition).collect();
        let (count, start) = (numbers.len(), before * numbers.len() / total.max(1));
        numbers.into_iter().cycle().skip(start).take(count)
    };
    let (late, rest) = survey.free.split_at(survey.free.partition_point(|free| free.idle >= overdue));
    from_own_offset(late).chain(from_own_offset(rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ports::partitions::InstanceLoad;
    use proptest::prelude::*;

    use super::*;

    type Owned = BTreeMap<InstanceId, BTreeSet<PartitionNo>>;

    fn instance(number: u32) -> InstanceId {
        InstanceId(format!("instance-{number:04}").into())
    }

    fn set(partitions: impl IntoIterator<Item = u32>) -> BTreeSet<PartitionNo> {
        partitions.into_iter().map(PartitionNo).collect()
    }

    const OVERDUE: Duration = Duration::from_secs(4);

    fn free(idle: Duration) -> impl Fn(PartitionNo) -> FreePartition {
        move |partition| FreePartition { partition, idle }
    }

    /// The survey of one member when these live members own these partitions and every other partition is free.
    fn survey(partitions: u32, owned: &Owned, instance: &InstanceId) -> LeaseSurvey {
        let taken: BTreeSet<PartitionNo> = owned.values().flatten().copied().collect();
        let load = |(instance, held): (&InstanceId, &BTreeSet<PartitionNo>)| InstanceLoad {
            instance: instance.clone(),
            held: held.len() as u32,
        };
        LeaseSurvey {
            members: owned.iter().map(load).collect(),
            own: owned[instance].iter().copied().collect(),
            free: set(0..partitions).difference(&taken).copied().map(free(OVERDUE / 2)).collect(),
        }
    }

    /// The action of each member when all of them survey the same leases.
    fn balances(partitions: u32, owned: &Owned) -> BTreeMap<InstanceId, Rebalance> {
        let live = owned.len() as u32;
        let balance = |(rank, (instance, held)): (u32, (&InstanceId, &BTreeSet<PartitionNo>))| {
            let rank = InstanceRank { rank, live };
            let survey = needs_survey(partitions, rank, held.len()).then(|| survey(partitions, owned, instance));
            let holdings = Holdings { workers: held, leased: held };
            (instance.clone(), balance(partitions, instance, rank, holdings, survey.as_ref(), OVERDUE))
        };
        (0..).zip(owned).map(balance).collect()
    }

    /// Applies what each member does; of several that take one partition the first one gets it. Returns how many were given up.
    fn round(partitions: u32, owned: &mut Owned) -> usize {
        let (mut given, mut taken) = (0, BTreeSet::new());
        for (instance, Rebalance { acquire, release, lost }) in balances(partitions, owned) {
            assert_eq!(lost, []);
            given += release.len();
            let held = owned.get_mut(&instance).expect("a member");
            release.iter().for_each(|no| assert!(held.remove(no), "{instance} gives what it holds"));
            held.extend(acquire.into_iter().filter(|no| taken.insert(*no)));
        }
        given
    }

    fn assert_fair(partitions: u32, owned: &Owned) {
        let all: Vec<PartitionNo> = owned.values().flatten().copied().collect();
        assert_eq!(set(0..partitions), all.iter().copied().collect());
        assert_eq!(all.len(), partitions as usize, "no partition has two owners");
        let counts = || owned.values().map(BTreeSet::len);
        assert!(counts().max().unwrap_or(0) - counts().min().unwrap_or(0) <= 1, "{:?}", counts().collect::<Vec<_>>());
    }

    prop_compose! {
        /// A number of partitions, and members that own some of them in no fair way.
        fn cluster()(partitions in 1..300_u32, members in 1..40_u32)(
            owners in prop::collection::vec(0..=members, partitions as usize),
            partitions in Just(partitions),
            members in Just(members),
        ) -> (u32, Owned) {
            let mut owned: Owned = (0..members).map(|member| (instance(member), BTreeSet::new())).collect();
            for (partition, owner) in (0..).zip(owners) {
                // The number after the last member's is a partition without an owner.
                if let Some(held) = owned.get_mut(&instance(owner)) {
                    held.insert(PartitionNo(partition));
                }
            }
            (partitions, owned)
        }
    }

    proptest! {
        #[test]
        fn quotas_add_up_to_all_partitions_and_differ_by_one(partitions in 0..5_000_u32, live in 1..1_200_u32) {
            let quotas: Vec<usize> = (0..live).map(|rank| quota(partitions, InstanceRank { rank, live })).collect();
            prop_assert_eq!(quotas.iter().sum::<usize>(), partitions as usize);
            prop_assert!(quotas[0] - quotas[quotas.len() - 1] <= 1);
        }

        #[test]
        fn members_that_survey_the_same_leases_take_different_free_partitions((partitions, mut owned) in cluster()) {
            let live = owned.len() as u32;
            for (rank, held) in (0..).zip(owned.values_mut()) {
                // No surplus: everything that a member lacks is free.
                let quota = quota(partitions, InstanceRank { rank, live });
                *held = held.iter().take(quota).copied().collect();
            }
            let mut taken: BTreeSet<PartitionNo> = owned.values().flatten().copied().collect();

            for (instance, Rebalance { acquire, release, .. }) in balances(partitions, &owned) {
                prop_assert!(acquire.iter().all(|no| taken.insert(*no)) && release.is_empty(), "{instance}: {acquire:?}");
            }

            prop_assert_eq!(taken.len(), partitions as usize, "none stays free");
        }

        #[test]
        fn free_partitions_wait_for_no_other_member((partitions, owned) in cluster()) {
            let free = partitions as usize - owned.values().map(BTreeSet::len).sum::<usize>();
            let live = owned.len() as u32;
            for (rank, (instance, Rebalance { acquire, .. })) in (0..).zip(balances(partitions, &owned)) {
                let lacking = quota(partitions, InstanceRank { rank, live }).saturating_sub(owned[&instance].len());
                prop_assert_eq!(acquire.len(), lacking.min(free), "{}", instance);
            }
        }

        #[test]
        fn shares_are_fair_after_two_rounds_and_then_nothing_moves((partitions, mut owned) in cluster()) {
            round(partitions, &mut owned);
            round(partitions, &mut owned);
            assert_fair(partitions, &owned);
            prop_assert!(balances(partitions, &owned).values().all(|balance| *balance == Rebalance::default()));
        }

        #[test]
        fn join_moves_only_the_share_of_the_new_member((partitions, mut owned) in cluster(), name in 0..50_u32) {
            round(partitions, &mut owned);
            round(partitions, &mut owned);
            owned.entry(InstanceId(format!("instance-{name:04}-new").into())).or_default();
            let live = owned.len() as u32;

            let given = round(partitions, &mut owned);
            round(partitions, &mut owned);

            assert_fair(partitions, &owned);
            prop_assert!(given <= partitions.div_ceil(live) as usize, "{given} of {partitions} moved");
        }

        #[test]
        fn leave_moves_only_the_partitions_of_the_leaver((partitions, mut owned) in cluster(), leaver in 0..40_u32) {
            round(partitions, &mut owned);
            round(partitions, &mut owned);
            prop_assume!(owned.len() > 1);
            owned.remove(&instance(leaver % owned.len() as u32));

            prop_assert_eq!(round(partitions, &mut owned), 0);
            assert_fair(partitions, &owned);
        }
    }

    /// The balance of `instance`, the second of two members, over 8 partitions.
    fn balance_of_second(
        workers: &BTreeSet<PartitionNo>,
        leased: &BTreeSet<PartitionNo>,
        survey: Option<&LeaseSurvey>,
    ) -> Rebalance {
        balance(8, &instance(1), InstanceRank { rank: 1, live: 2 }, Holdings { workers, leased }, survey, OVERDUE)
    }

    #[test]
    fn leases_of_an_earlier_process_are_taken_before_free_partitions() {
        let owned = Owned::from([(instance(0), BTreeSet::new()), (instance(1), set([5, 7]))]);

        let balance = balance_of_second(&set([]), &set([]), Some(&survey(8, &owned, &instance(1))));

        // Of the free ones, the first four fall to the first member.
        assert_eq!(balance.acquire, [5, 7, 4, 6].map(PartitionNo));
    }

    #[test]
    fn overdue_partition_is_taken_first_whatever_the_own_offset_is() {
        let owned = Owned::from([(instance(0), BTreeSet::new()), (instance(1), set([7]))]);
        let mut survey = survey(8, &owned, &instance(1));
        let late = [6, 2].map(PartitionNo).map(free(OVERDUE));
        survey.free.retain(|free| late.iter().all(|late| late.partition != free.partition));
        survey.free.splice(0..0, late);

        let balance = balance_of_second(&set([7]), &set([7]), Some(&survey));

        // The own offset follows four of seven lacking partitions, in both parts.
        assert_eq!(balance.acquire, [2, 6, 3].map(PartitionNo));
    }

    #[test]
    fn worker_of_a_partition_that_another_instance_holds_is_lost_and_no_share() {
        let owned = Owned::from([(instance(0), set([0, 1, 2, 3])), (instance(1), set([4]))]);

        let balance = balance_of_second(&set([0, 1, 4]), &set([4]), Some(&survey(8, &owned, &instance(1))));

        assert_eq!(
            balance,
            Rebalance {
                acquire: [5, 6, 7].map(PartitionNo).into(),
                release: vec![],
                lost: [0, 1].map(PartitionNo).into()
            }
        );
    }

    #[test]
    fn lease_that_was_acquired_after_the_survey_is_not_lost() {
        let owned = Owned::from([(instance(0), set([0, 1, 2, 3])), (instance(1), set([]))]);

        let balance = balance_of_second(&set([3, 4]), &set([3, 4]), Some(&survey(8, &owned, &instance(1))));

        assert_eq!((balance.lost, balance.release), (vec![], vec![]));
    }

    #[test]
    fn surplus_without_a_lease_is_given_up_before_the_highest_numbers() {
        let balance = balance_of_second(&set([0, 1, 2, 3, 4, 5, 6]), &set([0, 1, 2, 4, 5, 6]), None);

        assert_eq!(balance.release, [3, 6, 5].map(PartitionNo));
    }
}
