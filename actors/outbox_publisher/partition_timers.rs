//! PartitionTimers: the next timed run of each partition.
use std::collections::BTreeMap;

use ports::partitions::PartitionNo;
use tokio::time::Instant;

/// At most one timer per partition: the earliest. Pure: the caller passes the time and sets the timers.
#[derive(Debug, Default)]
pub struct PartitionTimers(BTreeMap<PartitionNo, Instant>);

impl PartitionTimers {
    /// Sets the timer. Returns true if the caller must start one: an earlier timer that has not fired covers this one.
    pub fn set(&mut self, partition: PartitionNo, at: Instant, now: Instant) -> bool {
        if self.0.get(&partition).is_some_and(|earlier| *earlier <= at && *earlier > now) {
            return false;
        }
        self.0.insert(partition, at);
        true
    }

    /// Removes the timer of this partition, which has fired, if it is due.
    pub fn remove_fired(&mut self, partition: PartitionNo, now: Instant) {
        if self.0.get(&partition).is_some_and(|due_at| *due_at <= now) {
            self.0.remove(&partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_earlier_timer_covers_a_later_one_until_it_has_fired() {
        let (mut timers, now) = (PartitionTimers::default(), Instant::now());
        let partition = PartitionNo(1);

        assert!(timers.set(partition, now + 50 * MS, now));
        assert!(!timers.set(partition, now + 80 * MS, now), "covered");
        assert!(timers.set(partition, now + 20 * MS, now), "an earlier one needs its own timer");
        timers.remove_fired(partition, now + 10 * MS);
        assert!(!timers.set(partition, now + 30 * MS, now), "a timer that fires before it is due leaves it");
        timers.remove_fired(partition, now + 20 * MS);

        assert!(timers.set(partition, now + 80 * MS, now + 20 * MS));
    }
}
