//! How many partitions an instance should hold. The partition of a key is a rule of crate `outbox`.
use std::collections::BTreeSet;

use ports::partitions::PartitionNo;

/// ⌈P / members⌉: an instance releases the partitions it holds beyond this number.
pub fn fair_share(partitions: u32, members: usize) -> usize {
    (partitions as usize).div_ceil(members.max(1))
}

/// The partitions that an instance should acquire and release now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Partitions to acquire: no live instance holds them.
    pub take: Vec<PartitionNo>,
    /// Surplus partitions to drain and release.
    pub give: Vec<PartitionNo>,
}

/// Acquires free partitions up to the fair share, or releases those beyond it. `held` are this instance's partitions;
/// `owned_by_live` are those of live instances, which are not acquired.
pub fn balance(
    partitions: u32,
    members: usize,
    held: &BTreeSet<PartitionNo>,
    owned_by_live: &BTreeSet<PartitionNo>,
) -> Balance {
    let share = fair_share(partitions, members);
    if held.len() > share {
        let give = held.iter().rev().take(held.len() - share).copied().collect();
        return Balance { take: Vec::new(), give };
    }
    let free = (0..partitions).map(PartitionNo).filter(|no| !held.contains(no) && !owned_by_live.contains(no));
    Balance { take: free.take(share - held.len()).collect(), give: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(range: std::ops::Range<u32>) -> BTreeSet<PartitionNo> {
        range.map(PartitionNo).collect()
    }

    #[test]
    fn single_instance_acquires_every_partition() {
        assert_eq!(balance(64, 1, &set(0..0), &set(0..0)).take.len(), 64);
    }

    #[test]
    fn surplus_is_released_and_free_partitions_are_acquired_at_once() {
        let surplus = balance(64, 2, &set(0..64), &set(0..0));
        assert_eq!(surplus.give.len(), 32);
        let late = balance(64, 2, &set(0..0), &set(0..40));
        assert_eq!(late.take.len(), 24, "free partitions are acquired without waiting for the whole share");
        let settled = balance(64, 2, &set(0..32), &set(32..64));
        assert_eq!(settled, Balance::default());
    }

    #[test]
    fn fair_shares_cover_all_partitions() {
        for members in 1..10 {
            assert!(fair_share(64, members) * members >= 64);
        }
        assert_eq!(fair_share(64, 3), 22);
        assert_eq!(fair_share(64, 0), 64);
    }
}
