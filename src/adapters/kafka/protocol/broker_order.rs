//! The order in which a producer sends a request that any broker can answer, and how long it waits for each broker.
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Longest wait for one broker while others are left. A broker answers such a request within milliseconds; one that hangs accepts connections, and
/// would use the time of all the others.
const BROKER_WAIT_MAX: Duration = Duration::from_secs(2);

/// The addresses of all groups, each once, in the order of the groups. The rotation selects the first address of each group, so that successive
/// calls do not depend on the same broker.
pub(crate) fn ordered(groups: [Vec<&String>; 3], rotation: usize) -> Vec<String> {
    let rotated = |mut group: Vec<&String>| {
        let first = rotation.checked_rem(group.len()).unwrap_or(0);
        group.rotate_left(first);
        group.into_iter().cloned().collect::<Vec<_>>()
    };
    let mut addresses: Vec<String> = groups.into_iter().flat_map(rotated).collect();
    let mut seen = HashSet::new();
    addresses.retain(|address| seen.insert(address.clone()));
    addresses
}

/// When the wait for a broker ends, if `remaining` brokers are left, this one included. The last one has all the time that is left.
pub(crate) fn wait_end(now: Instant, deadline: Instant, remaining: u32) -> Instant {
    let share = deadline.saturating_duration_since(now) / remaining.max(1);
    if remaining <= 1 { deadline } else { now + share.min(BROKER_WAIT_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_begins_with_another_address_at_each_rotation() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(String::from);
        let order = |rotation| ordered([vec![&a, &b], vec![&a, &b, &c], vec![&d, &a]], rotation).concat();

        assert_eq!([0, 1, 2, 3].map(order), ["abcd", "bacd", "abcd", "bacd"]);
        assert_eq!(ordered([vec![], vec![], vec![&c, &d]], 1), ["d", "c"]);
        assert!(ordered([vec![], vec![], vec![]], 7).is_empty());
    }

    #[test]
    fn broker_that_hangs_leaves_time_for_the_others() {
        let now = Instant::now();
        let wait = |seconds, remaining| wait_end(now, now + Duration::from_secs(seconds), remaining) - now;

        assert_eq!(wait(10, 3), BROKER_WAIT_MAX);
        assert_eq!(wait(4, 4), Duration::from_secs(1), "each broker gets its share of a short time");
        assert_eq!(wait(10, 1), Duration::from_secs(10), "the last one gets all that is left");
        assert_eq!(wait(0, 3), Duration::ZERO);
    }
}
