//! Shares: how many partitions each member of a group may own.
use std::collections::BTreeMap;

use crate::cluster::kafka::groups::coordinator::MemberNo;

/// The share of each member: equal up to one partition. Members that own more have the larger shares, so that few partitions move.
pub fn quotas(partitions: usize, owned: &BTreeMap<MemberNo, usize>) -> BTreeMap<MemberNo, usize> {
    let members = owned.len().max(1);
    let (least, larger) = (partitions / members, partitions % members);
    let mut by_count: Vec<(&MemberNo, &usize)> = owned.iter().collect();
    by_count.sort_by_key(|(member, count)| (std::cmp::Reverse(**count), **member));
    let quota = |place: usize| least + usize::from(place < larger);
    by_count.into_iter().enumerate().map(|(place, (member, _))| (*member, quota(place))).collect()
}

#[test]
fn shares_differ_by_one_and_members_that_own_more_keep_more() {
    let shares = quotas(8, &[(1, 0), (2, 4), (3, 4)].into());

    assert_eq!(shares, [(1, 2), (2, 3), (3, 3)].into());
    assert_eq!(quotas(5, &[(7, 5)].into()), [(7, 5)].into());
}
