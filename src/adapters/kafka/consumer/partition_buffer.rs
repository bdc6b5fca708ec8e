//! The buffer of one assigned topic partition, without I/O: fetched and unacknowledged messages, and how many of them are in flight.
use std::collections::VecDeque;
use std::time::Duration;

use domain::Timestamp;
use ports::broker::Position;
use ports::broker::consumer_groups::ConsumerRecord;

use crate::consumer::unread_gap::UnreadGap;

/// Messages of one topic partition. A delivered message stays in the buffer until it is acknowledged, so that a rewind needs no broker.
#[derive(Debug, Default)]
pub(crate) struct PartitionBuffer {
    messages: VecDeque<ConsumerRecord>,
    /// How many messages, from the first, are in flight.
    in_flight: usize,
    /// Bytes of the values of the messages that are not in flight.
    ready_bytes: usize,
    /// The offset after the last fetched one.
    fetched: Option<u64>,
    /// The offset after the last delivered one. A rewind does not lower it.
    delivered: u64,
    /// The offset below which every message was acknowledged.
    acknowledged: u64,
    /// The last message that was acknowledged.
    last_acknowledged: Option<ConsumerRecord>,
    /// The group's offset when the partition was assigned; `None` where it has none, or it is not known yet.
    committed: Option<u64>,
    /// How many statistics the client had sent when the partition was assigned.
    assigned_after: u64,
    first_fetch: Option<FirstFetch>,
    /// When the group had last read the whole partition, as far as this member has seen.
    caught_up_at: Option<Timestamp>,
    /// Offsets that were skipped, until it is known whether their records were removed.
    pub(crate) gap: Option<UnreadGap>,
    /// The group is revoking the partition: no more messages are delivered.
    pub(crate) is_being_revoked: bool,
    /// The consumer is paused for this partition, because the buffer is full.
    pub(crate) is_paused: bool,
}

/// The first message that the client has fetched since the partition was assigned.
#[derive(Clone, Copy, Debug)]
struct FirstFetch {
    offset: u64,
    /// How many statistics the client had sent then.
    statistics: u64,
}

impl PartitionBuffer {
    /// The buffer of a partition that was assigned after this number of statistics of the client.
    pub(crate) fn assigned_after(statistics: u64) -> Self {
        Self { assigned_after: statistics, ..Self::default() }
    }

    /// Remembers the offsets that are missing before this message, which is not pushed yet. Their records were removed, unless the log began
    /// before them. `statistics` is the number of statistics that the client has sent so far.
    pub(crate) fn note_fetch(&mut self, offset: u64, statistics: u64) {
        match self.fetched {
            Some(read_until) if self.gap.is_none() => self.gap = UnreadGap::before(offset, read_until, statistics),
            Some(_) => {}
            None => {
                self.first_fetch = Some(FirstFetch { offset, statistics });
                self.note_first_gap();
            }
        }
    }

    /// Records the offset that the group had committed when the partition was assigned. The first messages may have come before it.
    pub(crate) fn record_committed(&mut self, committed: u64) {
        self.committed = Some(committed);
        self.note_first_gap();
    }

    fn note_first_gap(&mut self) {
        if let (None, Some(committed), Some(first)) = (self.gap, self.committed, self.first_fetch) {
            self.gap = UnreadGap::before(first.offset, committed, first.statistics);
        }
    }

    /// Whether the client's statistics with this number show the end of the log. Until its first fetch after the assignment, the client reports the
    /// end from the time when it last had the partition. A client that has reached the end may have fetched no message.
    pub(crate) fn knows_end(&self, statistics: u64, has_reached_end: bool) -> bool {
        match self.first_fetch {
            Some(first) => statistics > first.statistics,
            None => has_reached_end && statistics > self.assigned_after,
        }
    }

    /// Whether this message shows that the partition's log was truncated: its offset was fetched before with a different message. The client
    /// fetches each offset of an assignment once, unless its fetch position is no longer in the log. Exception: a rebalance may return the last
    /// message a second time.
    pub(crate) fn log_was_truncated(&self, message: &ConsumerRecord) -> bool {
        let offset = message.position.offset;
        let known = || {
            let held = self.messages.binary_search_by_key(&offset, |held| held.position.offset);
            held.ok().map(|index| &self.messages[index]).or(self.last_acknowledged.as_ref())
        };
        self.fetched.is_some_and(|next| offset < next) && known() != Some(message)
    }

    pub(crate) fn report_truncated_log(&self, Position { topic, partition, offset }: &Position) {
        let read_until = self.fetched;
        tracing::warn!(
            event = "partition_log_truncated",
            topic = &**topic,
            partition,
            read_until,
            offset,
            "a topic partition was truncated, or its topic was created again; the group continues at an offset that it had already read"
        );
    }

    /// Begins again at this offset of a truncated log. The messages that were fetched before are no longer in the log.
    pub(crate) fn restart(&mut self, offset: u64) {
        let Self { is_being_revoked, is_paused, .. } = *self;
        *self = Self { acknowledged: offset, is_being_revoked, is_paused, ..Self::default() };
    }

    /// Adds a fetched message. Ignores one that was added or acknowledged before.
    pub(crate) fn push(&mut self, message: ConsumerRecord) {
        let offset = message.position.offset;
        if self.fetched.is_some_and(|next| offset < next) || offset < self.acknowledged {
            return;
        }
        self.fetched = Some(offset + 1);
        self.ready_bytes += message.record.value.len();
        self.messages.push_back(message);
    }

    /// How many messages can be delivered now.
    pub(crate) fn ready(&self) -> usize {
        if self.is_being_revoked { 0 } else { self.messages.len() - self.in_flight }
    }

    /// Bytes of the values of the messages that are not in flight.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// How many messages are in flight: delivered, and neither acknowledged nor rewound.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Delivers at most `limit` messages.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<ConsumerRecord> {
        let count = self.ready().min(limit);
        let taken: Vec<ConsumerRecord> = self.messages.range(self.in_flight..self.in_flight + count).cloned().collect();
        self.set_in_flight(self.in_flight + count);
        self.delivered = taken.last().map_or(self.delivered, |last| self.delivered.max(last.position.offset + 1));
        taken
    }

    /// Whether the message at this offset was delivered from this buffer and is not acknowledged. One that was delivered before the partition went
    /// to another member and came back is not: that member may have committed a higher offset.
    pub(crate) fn has_delivered(&self, offset: u64) -> bool {
        offset < self.delivered && self.messages.front().is_some_and(|first| first.position.offset <= offset)
    }

    /// Makes every unacknowledged message deliverable again.
    pub(crate) fn rewind(&mut self) {
        self.set_in_flight(0);
    }

    /// Makes the unacknowledged messages from this offset on deliverable again.
    pub(crate) fn rewind_to(&mut self, offset: u64) {
        let before = self.messages.partition_point(|message| message.position.offset < offset);
        self.set_in_flight(self.in_flight.min(before));
    }

    /// Acknowledges every message below this offset.
    pub(crate) fn acknowledge(&mut self, next: u64) {
        self.acknowledged = self.acknowledged.max(next);
        let done = self.messages.partition_point(|message| message.position.offset < next);
        self.set_in_flight(self.in_flight.max(done));
        self.last_acknowledged = self.messages.drain(..done).next_back().or(self.last_acknowledged.take());
        self.in_flight -= done;
    }

    /// The offset below which this member has acknowledged every message.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many messages are fetched and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.messages.len()
    }

    /// Records that the group has read the whole partition.
    pub(crate) fn record_caught_up(&mut self, now: Timestamp) {
        self.caught_up_at = Some(now);
    }

    /// How long the oldest unacknowledged message has waited: its age, which is that of its change, but no longer than since the group had read the
    /// whole partition. After an outage of the broker, and after a redrive, the relay sends old changes, for which no consumer is late.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        let Some(oldest) = self.messages.front() else { return Duration::ZERO };
        let age = now.since(oldest.record.timestamp);
        self.caught_up_at.map_or(age, |caught_up_at| age.min(now.since(caught_up_at)))
    }

    /// The offset after the last fetched one.
    pub(crate) fn fetched(&self) -> Option<u64> {
        self.fetched
    }

    /// Sets the number of messages in flight to `count`, from the first on.
    fn set_in_flight(&mut self, count: usize) {
        let bytes = |range: std::ops::Range<usize>| -> usize {
            self.messages.range(range).map(|message| message.record.value.len()).sum()
        };
        if count >= self.in_flight {
            self.ready_bytes -= bytes(self.in_flight..count);
        } else {
            self.ready_bytes += bytes(count..self.in_flight);
        }
        self.in_flight = count;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ports::broker::Record;

    use super::*;

    fn consumer_record(offset: u64) -> ConsumerRecord {
        let topic: Arc<str> = "t".into();
        let record = Record {
            topic: topic.clone(),
            key: "k".into(),
            headers: Default::default(),
            value: b"12".as_slice().into(),
            timestamp: Timestamp::from_millis(offset as i64),
        };
        ConsumerRecord { position: Position { topic, partition: 0, offset }, record }
    }

    fn buffer(offsets: &[u64]) -> PartitionBuffer {
        let mut buffer = PartitionBuffer::default();
        offsets.iter().for_each(|offset| buffer.push(consumer_record(*offset)));
        buffer
    }

    fn offsets(messages: &[ConsumerRecord]) -> Vec<u64> {
        messages.iter().map(|message| message.position.offset).collect()
    }

    #[test]
    fn message_is_added_once() {
        let buffer = buffer(&[3, 4, 4, 3, 7]);

        assert_eq!((buffer.ready(), buffer.ready_bytes(), buffer.fetched()), (3, 6, Some(8)));
    }

    #[test]
    fn in_flight_messages_are_delivered_again_only_after_a_rewind() {
        let mut buffer = buffer(&[1, 2, 3]);
        assert_eq!(offsets(&buffer.take(2)), [1, 2]);
        assert_eq!(offsets(&buffer.take(2)), [3]);

        buffer.acknowledge(2);
        buffer.rewind();

        assert_eq!((buffer.in_flight(), buffer.ready_bytes()), (0, 4));
        assert_eq!(offsets(&buffer.take(9)), [2, 3]);
    }

    #[test]
    fn rewind_to_an_offset_leaves_earlier_messages_in_flight() {
        let mut buffer = buffer(&[1, 5, 9]);
        buffer.take(3);

        buffer.rewind_to(5);

        assert_eq!((buffer.in_flight(), offsets(&buffer.take(9))), (1, vec![5, 9]));
    }

    #[test]
    fn acknowledgement_may_skip_messages_and_never_decreases() {
        let mut buffer = buffer(&[1, 2, 3]);
        buffer.take(1);

        buffer.acknowledge(3);
        buffer.acknowledge(2);

        assert_eq!((buffer.unacknowledged(), buffer.in_flight(), buffer.acknowledged()), (1, 0, 3));
        assert_eq!(buffer.age(Timestamp::from_millis(10)), Duration::from_millis(7));
    }

    #[test]
    fn old_message_has_waited_since_the_group_had_read_the_partition() {
        let (age, mut partition) =
            (|buffer: &PartitionBuffer, now| buffer.age(Timestamp::from_millis(now)), buffer(&[]));
        assert_eq!(age(&partition, 900), Duration::ZERO);
        partition.record_caught_up(Timestamp::from_millis(1_000));
        partition.push(consumer_record(5));
        assert_eq!(age(&partition, 1_007), Duration::from_millis(7), "the change was at 5 ms");

        partition.push(consumer_record(1_020));
        partition.acknowledge(6);
        assert_eq!(
            age(&partition, 1_100),
            Duration::from_millis(80),
            "a message that came later counts from its own time"
        );
        assert_eq!(age(&buffer(&[5]), 1_007), Duration::from_millis(1_002), "unknown to a new member");
    }

    #[test]
    fn end_of_the_log_is_known_by_the_statistics_that_follow_a_fetch() {
        let mut buffer = PartitionBuffer::assigned_after(3);
        assert_eq!([3, 4].map(|statistics| buffer.knows_end(statistics, true)), [false, true]);
        assert!(!buffer.knows_end(4, false), "the end is that of an earlier assignment");

        buffer.note_fetch(7, 5);
        buffer.push(consumer_record(7));

        assert_eq!([5, 6].map(|statistics| buffer.knows_end(statistics, false)), [false, true]);
    }

    #[test]
    fn gap_before_the_first_message_is_noted_when_the_committed_offset_comes() {
        let mut buffer = PartitionBuffer::assigned_after(3);
        buffer.note_fetch(20, 5);
        buffer.push(consumer_record(20));
        assert_eq!(buffer.gap, None);

        buffer.record_committed(10);

        assert_eq!(buffer.gap, Some(UnreadGap { read_until: 10, offset: 20, statistics: 5 }));
    }

    #[test]
    fn only_unacknowledged_messages_of_this_buffer_count_as_delivered() {
        let mut buffer = buffer(&[5, 6, 7, 8]);
        buffer.take(3);
        buffer.acknowledge(6);
        buffer.rewind();

        let delivered: Vec<u64> = (0..10).filter(|offset| buffer.has_delivered(*offset)).collect();

        assert_eq!(delivered, [6, 7]);
    }

    #[test]
    fn repeated_message_does_not_mean_that_the_log_was_truncated() {
        let mut buffer = buffer(&[3, 4, 7]);
        assert!([3, 4, 7, 8].iter().all(|offset| !buffer.log_was_truncated(&consumer_record(*offset))));
        buffer.take(3);
        buffer.rewind();
        buffer.acknowledge(8);

        assert!(
            !buffer.log_was_truncated(&consumer_record(7)),
            "the last one may be delivered again after its acknowledgement"
        );
    }

    #[test]
    fn buffer_restarts_with_the_messages_of_a_truncated_log() {
        let mut buffer = buffer(&[998, 999, 1_000]);
        buffer.take(2);
        buffer.acknowledge(999);
        let mut other = consumer_record(999);
        other.record.value = b"new".as_slice().into();
        assert!(buffer.log_was_truncated(&other), "another message at an offset that is in flight");
        assert!(buffer.log_was_truncated(&consumer_record(950)), "an offset below the acknowledged ones");

        buffer.restart(950);
        (950..953).for_each(|offset| buffer.push(consumer_record(offset)));

        assert!(!buffer.has_delivered(999), "a message of the log before");
        assert_eq!((buffer.acknowledged(), buffer.in_flight(), buffer.ready_bytes()), (950, 0, 6));
        assert_eq!(offsets(&buffer.take(9)), [950, 951, 952]);
        assert!(buffer.has_delivered(950));
    }

    #[test]
    fn partition_that_is_being_revoked_delivers_nothing() {
        let mut buffer = buffer(&[1]);
        buffer.is_being_revoked = true;

        assert_eq!((buffer.ready(), buffer.take(1).len()), (0, 0));
    }
}
