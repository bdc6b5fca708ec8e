//! Pacing: how long a partition pauses after a batch, and when it runs next. Each batch has a price that does not depend on its size
//! (statements, a fence, a watermark, a share of a transaction). Where many partitions have work, longer pauses make batches larger.
use std::collections::BTreeMap;
use std::time::Duration;

use ports::partitions::PartitionNo;
use tokio::time::Instant;

use crate::system::options::Options;

/// Pauses and alarms of all partitions. Pure: the caller passes the time.
#[derive(Debug)]
pub struct Pacing {
    concurrency: u32,
    pause_min: Duration,
    pause_max: Duration,
    paused_until: BTreeMap<PartitionNo, Instant>,
    /// The next timed run of each partition; the earliest wins.
    alarms: BTreeMap<PartitionNo, Instant>,
}

impl Pacing {
    /// Starts without pauses and alarms.
    pub fn new(options: &Options) -> Self {
        let Options { pacing_concurrency, batch_spacing, batch_pause_max, .. } = *options;
        Self {
            concurrency: pacing_concurrency.max(1),
            pause_min: batch_spacing,
            pause_max: batch_pause_max,
            paused_until: BTreeMap::new(),
            alarms: BTreeMap::new(),
        }
    }

    /// A batch has sent rows. Its partition pauses, counted from the batch's start. With more busy partitions (pausing or running) than the
    /// pacing's concurrency, the pause is as many times longer than the batch.
    pub fn batch_sent(&mut self, partition: PartitionNo, started: Instant, now: Instant, running: usize) {
        self.paused_until.retain(|other, until| *other != partition && *until > now);
        let busy = u32::try_from(self.paused_until.len() + running + 1).unwrap_or(u32::MAX);
        let pause = (now - started).saturating_mul(busy) / self.concurrency;
        self.paused_until.insert(partition, started + pause.min(self.pause_max).max(self.pause_min));
    }

    /// Remaining pause of a partition; zero without one.
    pub fn pause_left(&self, partition: PartitionNo, now: Instant) -> Duration {
        self.paused_until.get(&partition).map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }

    /// Sets an alarm. Returns true if the caller must set a timer: an earlier alarm that is still to come covers this one.
    pub fn set_alarm(&mut self, partition: PartitionNo, at: Instant, now: Instant) -> bool {
        if self.alarms.get(&partition).is_some_and(|earlier| *earlier <= at && *earlier > now) {
            return false;
        }
        self.alarms.insert(partition, at);
        true
    }

    /// A timer of this partition fired: an alarm that is due is done.
    pub fn alarm_fired(&mut self, partition: PartitionNo, now: Instant) {
        if self.alarms.get(&partition).is_some_and(|alarm| *alarm <= now) {
            self.alarms.remove(&partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pacing() -> Pacing {
        Pacing::new(&Options { pacing_concurrency: 4, batch_pause_max: 1_000 * MS, ..Options::default() })
    }

    #[test]
    fn a_partition_that_is_busy_alone_pauses_for_the_least_time() {
        let (mut pacing, started) = (pacing(), Instant::now());
        pacing.batch_sent(PartitionNo(1), started, started + 30 * MS, 0);
        assert_eq!(pacing.pause_left(PartitionNo(1), started + 5 * MS), 15 * MS, "of 20 ms from the batch's start");
        assert_eq!(pacing.pause_left(PartitionNo(1), started + 30 * MS), Duration::ZERO);
        assert_eq!(pacing.pause_left(PartitionNo(2), started), Duration::ZERO, "the others do not pause");
    }

    #[test]
    fn more_busy_partitions_make_each_pause_longer() {
        let (mut pacing, started) = (pacing(), Instant::now());
        let ended = started + 30 * MS;
        for number in 0..63 {
            pacing.batch_sent(PartitionNo(number), started, ended, 8);
        }
        pacing.batch_sent(PartitionNo(63), started, ended, 0);
        assert_eq!(pacing.pause_left(PartitionNo(63), started), 30 * MS * 64 / 4);
        assert!(pacing.pause_left(PartitionNo(0), started) < pacing.pause_left(PartitionNo(40), started));
    }

    #[test]
    fn no_pause_is_longer_than_the_maximum() {
        let (mut pacing, started) = (pacing(), Instant::now());
        pacing.batch_sent(PartitionNo(1), started, started + 400 * MS, 100);
        assert_eq!(pacing.pause_left(PartitionNo(1), started), 1_000 * MS);
    }

    #[test]
    fn partition_is_not_busy_after_its_pause() {
        let (mut pacing, started) = (pacing(), Instant::now());
        for number in 0..40 {
            pacing.batch_sent(PartitionNo(number), started, started + 8 * MS, 0);
        }
        let later = started + 5_000 * MS;
        pacing.batch_sent(PartitionNo(0), later, later + 80 * MS, 0);
        assert_eq!(pacing.pause_left(PartitionNo(0), later), 20 * MS, "one batch, and no other busy partition");
    }

    #[test]
    fn an_earlier_alarm_covers_a_later_one_until_it_has_fired() {
        let (mut pacing, now) = (pacing(), Instant::now());
        let partition = PartitionNo(1);

        assert!(pacing.set_alarm(partition, now + 50 * MS, now));
        assert!(!pacing.set_alarm(partition, now + 80 * MS, now), "covered");
        assert!(pacing.set_alarm(partition, now + 20 * MS, now), "an earlier one needs its own timer");
        pacing.alarm_fired(partition, now + 10 * MS);
        assert!(!pacing.set_alarm(partition, now + 30 * MS, now), "a timer before the alarm leaves it");
        pacing.alarm_fired(partition, now + 20 * MS);

        assert!(pacing.set_alarm(partition, now + 80 * MS, now + 20 * MS));
    }
}
