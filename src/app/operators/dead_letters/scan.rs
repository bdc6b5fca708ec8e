//! A scan of the dead-letter topic, partition by partition, within the time limit of one call.
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use domain::Timestamp;
use ports::broker::consumer_groups::ConsumerRecord;

use super::position::{DeadLetterCursor, DeadLetterPosition};

/// Time limit of one call. A broker returns some ten thousand dead letters a second.
pub(super) const CALL_TIME_MAX: Duration = Duration::from_secs(4);

/// Time limit of one call within a request with this timeout. A request may list and count, or append what a step of a redrive has found.
pub(super) fn call_time_max(request_timeout: Duration) -> Duration {
    CALL_TIME_MAX.min(request_timeout * 2 / 5)
}

/// The remaining part of a scan.
pub(super) struct Scan {
    unread: VecDeque<UnreadRange>,
    last: Option<DeadLetterPosition>,
    /// Time at which the scan started, when this call continues one.
    started_at: Option<Timestamp>,
    /// Time at which this call started.
    call_started_at: Timestamp,
    /// Time limit of this call.
    time_max: Duration,
}

/// The offsets of a partition that the scan has not read yet.
struct UnreadRange {
    partition: u32,
    from: u64,
    end: u64,
}

impl Scan {
    /// A scan from a cursor to the present end of each partition. `partitions` has the kept offsets of each.
    pub(super) fn after(
        cursor: Option<DeadLetterCursor>,
        partitions: Vec<Range<u64>>,
        now: Timestamp,
        time_max: Duration,
    ) -> Self {
        let after = cursor.map(|cursor| cursor.after);
        let unread_range = |(partition, Range { start: first, end }): (u32, Range<u64>)| {
            let from = match after {
                Some(after) if partition < after.partition => end,
                Some(after) if partition == after.partition => first.max(after.offset.saturating_add(1)),
                _ => first,
            };
            UnreadRange { partition, from, end }
        };
        let unread = (0..).zip(partitions).map(unread_range).filter(|range| range.from < range.end).collect();
        let started_at = cursor.and_then(|cursor| cursor.scan_started_at);
        Self { unread, last: after, started_at, call_started_at: now, time_max }
    }

    /// Partition and offset to read next; `None` at the end of the topic, and after the time limit once there is a cursor to continue from.
    pub(super) fn position(&self, now: Timestamp) -> Option<(u32, u64)> {
        let range =
            self.unread.front().filter(|_| self.last.is_none() || now.since(self.call_started_at) < self.time_max)?;
        Some((range.partition, range.from))
    }

    /// Moves past a dead letter. Returns whether it is part of the scan: it is not when it was added after the scan began.
    pub(super) fn advance(&mut self, dead_letter: &ConsumerRecord) -> bool {
        let position = &dead_letter.position;
        let Some(range) = self.unread.front_mut() else { return false };
        // A page may reach beyond the end at the start of this call.
        if range.partition != position.partition || position.offset >= range.end {
            return false;
        }
        self.last = Some(DeadLetterPosition { partition: position.partition, offset: position.offset });
        range.from = position.offset + 1;
        if range.from >= range.end {
            self.unread.pop_front();
        }
        self.started_at.is_none_or(|started_at| dead_letter.record.timestamp < started_at)
    }

    /// Skips the rest of a partition after a page that did not advance the scan: its records have expired, or are markers.
    pub(super) fn skip_partition_if_still_at(&mut self, partition: u32, from: u64) {
        if self.unread.front().is_some_and(|range| (range.partition, range.from) == (partition, from)) {
            self.unread.pop_front();
        }
    }

    /// Whether this call has reached the end or its time limit.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.position(now).is_none()
    }

    /// Cursor from which another call continues, if anything is left.
    pub(super) fn next(&self) -> Option<DeadLetterCursor> {
        let after = self.last.filter(|_| !self.unread.is_empty())?;
        Some(DeadLetterCursor { after, scan_started_at: self.started_at.or(Some(self.call_started_at)) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ports::broker::{Position, Record};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(7);

    fn dead_letter(partition: u32, offset: u64) -> ConsumerRecord {
        let (topic, nothing) = (Arc::<str>::from("t"), Arc::<[u8]>::from([]));
        let timestamp = Timestamp::from_millis(0);
        let record =
            Record { topic: topic.clone(), key: "k".into(), headers: Default::default(), value: nothing, timestamp };
        ConsumerRecord { position: Position { topic, partition, offset }, record }
    }

    fn scan_after(cursor: Option<DeadLetterCursor>, partitions: Vec<Range<u64>>) -> Scan {
        Scan::after(cursor, partitions, NOW, CALL_TIME_MAX)
    }

    fn cursor(text: &str) -> Option<DeadLetterCursor> {
        DeadLetterCursor::parse(text)
    }

    #[test]
    fn scan_reads_from_its_cursor_through_the_kept_records_to_the_end() {
        let mut scan = scan_after(cursor("1/3"), vec![0..9, 2..6, 4..4, 7..8]);
        let mut seen = Vec::new();
        while let Some((partition, offset)) = scan.position(NOW) {
            seen.push((partition, offset));
            assert!(scan.advance(&dead_letter(partition, offset)));
        }
        assert_eq!((seen, scan.next()), (vec![(1, 4), (1, 5), (3, 7)], None));
    }

    #[test]
    fn scan_skips_expired_records_and_gaps() {
        let mut scan = scan_after(None, vec![0..5, 0..2]);
        // Transaction markers and expired records leave gaps in the offsets.
        assert!(scan.advance(&dead_letter(0, 3)));
        assert_eq!((scan.position(NOW), scan.next()), (Some((0, 4)), cursor("0/3@7")));
        scan.skip_partition_if_still_at(0, 3);
        assert_eq!(scan.position(NOW), Some((0, 4)));
        assert!(!scan.advance(&dead_letter(0, 9)));
        scan.skip_partition_if_still_at(0, 4);
        assert_eq!((scan.position(NOW), scan.next()), (Some((1, 0)), cursor("0/3@7")));
    }

    #[test]
    fn call_ends_at_its_time_limit_with_a_cursor() {
        let mut scan = scan_after(None, vec![0..50_000; 1]);
        let (last, late) = (NOW.plus(CALL_TIME_MAX - Duration::from_millis(1)), NOW.plus(CALL_TIME_MAX));
        assert_eq!(scan.position(late), Some((0, 0)), "a call without a cursor has nothing to continue from yet");
        assert!(scan.advance(&dead_letter(0, 0)));
        assert_eq!((scan.position(last), scan.position(late)), (Some((0, 1)), None));
        assert_eq!((scan.is_over(late), scan.next()), (true, cursor("0/0@7")));
    }

    #[test]
    fn call_takes_two_fifths_of_the_request_timeout_at_most() {
        let limits = [1, 3, 10, 60].map(|seconds| call_time_max(Duration::from_secs(seconds)).as_millis());
        assert_eq!(limits, [400, 1_200, 4_000, 4_000]);
    }

    #[test]
    fn page_beyond_the_end_does_not_advance_another_partition() {
        let mut scan = scan_after(None, vec![0..2, 0..2]);
        let page: Vec<bool> = (0..4).map(|offset| scan.advance(&dead_letter(0, offset))).collect();
        assert_eq!((page, scan.position(NOW)), (vec![true, true, false, false], Some((1, 0))));
    }

    #[test]
    fn dead_letters_added_after_the_scan_began_are_not_part_of_it() {
        let added_at = |millis| {
            let mut dead_letter = dead_letter(0, 9);
            dead_letter.record.timestamp = Timestamp::from_millis(millis);
            dead_letter
        };
        let mut later = scan_after(cursor("0/3@7"), vec![0..20; 1]);
        assert!(later.advance(&added_at(6)) && !later.advance(&added_at(7)));
        assert_eq!(later.next(), cursor("0/9@7"), "the cursor keeps the time of the scan");
    }

    #[test]
    fn scan_after_the_largest_position_is_over() {
        assert!(scan_after(cursor("0/18446744073709551615"), vec![0..5; 1]).is_over(NOW));
    }
}
