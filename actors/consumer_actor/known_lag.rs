//! KnownLag: the last measured lag of a consumer. It outlives the membership: a new member knows no lag until it fetches.
use std::collections::HashMap;
use std::time::Duration;

use ports::broker::consumer_groups::Lag;
use tokio::time::Instant;

/// The last measurement and its time.
pub struct KnownLag {
    partitions: Vec<Lag>,
    measured_at: Instant,
}

impl KnownLag {
    /// No lag is known.
    pub fn new(now: Instant) -> Self {
        Self { partitions: Vec::new(), measured_at: now }
    }

    /// Time since the last measurement.
    pub fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.measured_at)
    }

    /// Records what was measured at `now`; the messages age from then on.
    pub fn replace(&mut self, partitions: Vec<Lag>, now: Instant) {
        (self.partitions, self.measured_at) = (partitions, now);
    }

    /// The lag now. Waiting messages have aged since the measurement: a consumer that fails cannot measure, and its lag only grows.
    pub fn at(&self, now: Instant) -> Vec<Lag> {
        let since = self.age(now);
        let aged = |lag: &Lag| Lag { age: if lag.messages == 0 { lag.age } else { lag.age + since }, ..lag.clone() };
        self.partitions.iter().map(aged).collect()
    }

    /// A measurement of a consumer that has acknowledged nothing since the last one: what waited then still waits, also where the new member has
    /// not fetched it yet.
    pub fn while_failing(&self, measured: Vec<Lag>, now: Instant) -> Vec<Lag> {
        let known = self.at(now);
        let known: HashMap<_, _> = known.iter().map(|lag| ((&*lag.topic, lag.partition), lag)).collect();
        let at_least_known = |lag: Lag| match known.get(&(&*lag.topic, lag.partition)) {
            Some(known) => Lag { messages: lag.messages.max(known.messages), age: lag.age.max(known.age), ..lag },
            None => lag,
        };
        measured.into_iter().map(at_least_known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(partition: u32, messages: u64, seconds: u64) -> Lag {
        Lag { topic: "order.events".into(), partition, messages, age: Duration::from_secs(seconds) }
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

        let measured =
            known.while_failing(vec![lag(0, 0, 0), lag(1, 4, 30), lag(3, 2, 1)], start + Duration::from_secs(3));

        assert_eq!(measured, [lag(0, 7, 5), lag(1, 4, 30), lag(3, 2, 1)], "partition 2 has gone");
    }
}
