//! KnownLag: the last measured lag of a consumer. It outlives the membership: a new member knows no lag until it fetches.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ports::broker::consumer_groups::Lag;
use tokio::time::Instant;

/// The last measurements and their times.
pub struct KnownLag {
    partitions: Vec<KnownPartition>,
    confirmed_at: Instant,
}

/// The lag of a partition when it was measured.
#[derive(Clone)]
struct KnownPartition {
    lag: Lag,
    measured_at: Instant,
}

impl KnownPartition {
    /// The lag now: waiting messages have aged since the measurement.
    fn at(&self, now: Instant) -> Lag {
        let since = if self.lag.messages == 0 { Duration::ZERO } else { now.duration_since(self.measured_at) };
        Lag { age: self.lag.age + since, ..self.lag.clone() }
    }
}

impl KnownLag {
    /// No lag is known.
    pub fn new(now: Instant) -> Self {
        Self { partitions: Vec::new(), confirmed_at: now }
    }

    /// Time since the last measurement or confirmation.
    pub fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.confirmed_at)
    }

    /// Records that the consumer has received messages, so that its partitions are still its own. It may fail before their lag is measured.
    pub fn confirm(&mut self, now: Instant) {
        self.confirmed_at = now;
    }

    /// Records a measurement made at `now`; the messages age from then on.
    pub fn replace(&mut self, measured: Vec<Lag>, now: Instant) {
        self.partitions = measured.into_iter().map(|lag| KnownPartition { lag, measured_at: now }).collect();
        self.confirmed_at = now;
    }

    /// Removes the lag of every partition.
    pub fn clear(&mut self) {
        self.partitions.clear();
    }

    /// The lag now. A consumer that fails cannot measure, and its lag only grows.
    pub fn at(&self, now: Instant) -> Vec<Lag> {
        self.partitions.iter().map(|partition| partition.at(now)).collect()
    }

    /// Records a measurement of a consumer that has acknowledged nothing since the last one: what waited then still waits, also where the new
    /// member has not fetched it yet. A topic of which the member has no partition yet stays known for `kept` after its last measurement: a member
    /// gets the partitions of its topics one topic after the other.
    pub fn replace_while_failing(&mut self, measured: Vec<Lag>, kept: Duration, now: Instant) {
        let known = self.at(now);
        let known: HashMap<_, _> = known.iter().map(|lag| ((&*lag.topic, lag.partition), lag)).collect();
        let at_least_known = |lag: Lag| match known.get(&(&*lag.topic, lag.partition)) {
            Some(known) => Lag { messages: lag.messages.max(known.messages), age: lag.age.max(known.age), ..lag },
            None => lag,
        };
        let measured: Vec<Lag> = measured.into_iter().map(at_least_known).collect();
        let topics: HashSet<&str> = measured.iter().map(|lag| &*lag.topic).collect();
        let is_kept = |partition: &&KnownPartition| {
            !topics.contains(&*partition.lag.topic) && now.duration_since(partition.measured_at) <= kept
        };
        let unmeasured: Vec<KnownPartition> = self.partitions.iter().filter(is_kept).cloned().collect();
        self.replace(measured, now);
        self.partitions.extend(unmeasured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Duration = Duration::from_secs(30);

    fn lag(partition: u32, messages: u64, seconds: u64) -> Lag {
        Lag { topic: "order.events".into(), partition, messages, age: Duration::from_secs(seconds) }
    }

    fn retries(partition: u32) -> Lag {
        Lag { topic: "order.events-retry-0".into(), ..lag(partition, 0, 0) }
    }

    #[test]
    fn waiting_messages_age_between_two_measurements() {
        let (start, mut known) = (Instant::now(), KnownLag::new(Instant::now()));
        known.replace(vec![lag(0, 7, 2), lag(1, 0, 0)], start);

        assert_eq!(known.at(start + Duration::from_secs(3)), [lag(0, 7, 5), lag(1, 0, 0)]);
    }

    #[test]
    fn partition_of_a_failing_consumer_keeps_its_lag_until_it_is_fetched_again() {
        let (start, mut known) = (Instant::now(), KnownLag::new(Instant::now()));
        known.replace(vec![lag(0, 7, 2), lag(1, 1, 9), lag(2, 1, 1)], start);

        let now = start + Duration::from_secs(3);
        known.replace_while_failing(vec![lag(0, 0, 0), lag(1, 4, 30), lag(3, 2, 1)], KEPT, now);

        assert_eq!(known.at(now), [lag(0, 7, 5), lag(1, 4, 30), lag(3, 2, 1)], "partition 2 has gone");
    }

    #[test]
    fn topic_without_a_partition_yet_keeps_its_lag_for_some_time() {
        let (start, mut known) = (Instant::now(), KnownLag::new(Instant::now()));
        known.replace(vec![lag(0, 7, 2), retries(0)], start);
        let mut known_after = |seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            known.replace_while_failing(vec![retries(0)], KEPT, now);
            known.at(now)
        };

        assert_eq!(known_after(1), [retries(0), lag(0, 7, 3)]);
        assert_eq!(known_after(30), [retries(0), lag(0, 7, 32)]);
        assert_eq!(known_after(31), [retries(0)], "another member has its partitions");
    }
}
