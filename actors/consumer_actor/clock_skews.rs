//! Measures how far the clocks of the writers of retry topics are ahead of this instance's clock.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use ports::broker::Position;

/// The measured skews, at most one for each partition of a retry topic.
#[derive(Debug, Default)]
pub struct ClockSkews(Mutex<HashMap<(Arc<str>, u32), ClockSkew>>);

#[derive(Clone, Copy, Debug)]
struct ClockSkew {
    /// The latest timestamp that this clock has written.
    written: Timestamp,
    ahead: Duration,
    /// When it was last measured, by this instance's clock.
    measured: Timestamp,
}

impl ClockSkews {
    /// Returns how far the clock of the writer of the message at this position is ahead of `wall`, this instance's clock. `written` is the message's
    /// timestamp. The largest measurement counts, so that all messages of one writer wait together, not one after the other. The skew is
    /// measured anew if the timestamp is more than `tolerance` behind the latest one (another clock), or if the last measurement is older than
    /// 2 × `tolerance` (the clock may have been corrected).
    pub fn measure(&self, position: &Position, written: Timestamp, wall: Timestamp, tolerance: Duration) -> Duration {
        let mut skews = self.0.lock();
        let skew = skews.entry((Arc::clone(&position.topic), position.partition));
        let unknown = ClockSkew { written, ahead: Duration::ZERO, measured: wall };
        let skew = skew.or_insert(unknown);
        if written.plus(tolerance) < skew.written || wall.since(skew.measured) > tolerance * 2 {
            *skew = unknown;
        }
        skew.written = skew.written.max(written);
        skew.measured = skew.measured.max(wall);
        skew.ahead = skew.ahead.max(written.since(wall));
        skew.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_measurement_of_a_clock_counts_until_another_clock_writes() {
        let (skews, position) = (ClockSkews::default(), Position { topic: "t".into(), partition: 0, offset: 0 });
        let seconds = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let measure =
            |written, wall| skews.measure(&position, seconds(written), seconds(wall), Duration::from_secs(8)).as_secs();

        assert_eq!(
            [(3_600, 0), (3_600, 8), (3_595, 8), (3_610, 9)].map(|(of, at)| measure(of, at)),
            [3_600, 3_600, 3_600, 3_601]
        );
        assert_eq!([(900, 10), (900, 18)].map(|(of, at)| measure(of, at)), [890, 890], "a clock that is less ahead");
        assert_eq!(
            [(900, 34), (920, 51)].map(|(of, at)| measure(of, at)),
            [890, 869],
            "a clock that was set meanwhile"
        );
    }
}
