//! Which share a key belongs to, and how many shares an instance should hold.
use std::collections::BTreeSet;

use ports::partitions::PartitionNo;

/// ⌈P / members⌉: the share beyond which an instance gives partitions back.
pub fn fair_share(partitions: u32, members: usize) -> usize {
    (partitions as usize).div_ceil(members.max(1))
}

/// What an instance should do about its partitions now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Free ones to take: nobody alive holds them.
    pub take: Vec<PartitionNo>,
    /// Surplus to drain and give back.
    pub give: Vec<PartitionNo>,
}

/// Takes free partitions up to the fair share, gives back what is beyond it. Surplus is only given while somebody is there to take it.
/// `held` are this instance's; `owned_by_living` tells who else's stay untouched.
pub fn balance(
    partitions: u32,
    members: usize,
    held: &BTreeSet<PartitionNo>,
    owned_by_living: &BTreeSet<PartitionNo>,
) -> Balance {
    let share = fair_share(partitions, members);
    if held.len() > share {
        let give = held.iter().rev().take(held.len() - share).copied().collect();
        return Balance { take: Vec::new(), give };
    }
    let free = (0..partitions).map(PartitionNo).filter(|no| !held.contains(no) && !owned_by_living.contains(no));
    Balance { take: free.take(share - held.len()).collect(), give: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(range: std::ops::Range<u32>) -> BTreeSet<PartitionNo> {
        range.map(PartitionNo).collect()
    }

    #[test]
    fn a_lone_instance_takes_everything() {
        assert_eq!(balance(64, 1, &set(0..0), &set(0..0)).take.len(), 64);
    }

    #[test]
    fn surplus_is_given_and_what_is_free_is_taken_at_once() {
        let surplus = balance(64, 2, &set(0..64), &set(0..0));
        assert_eq!(surplus.give.len(), 32);
        let late = balance(64, 2, &set(0..0), &set(0..40));
        assert_eq!(late.take.len(), 24, "what is there, without waiting for the whole share");
        let settled = balance(64, 2, &set(0..32), &set(32..64));
        assert_eq!(settled, Balance::default());
    }

    #[test]
    fn shares_add_up_to_all_partitions() {
        for members in 1..10 {
            assert!(fair_share(64, members) * members >= 64);
        }
        assert_eq!(fair_share(64, 3), 22);
        assert_eq!(fair_share(64, 0), 64);
    }
}
