//! One topic partition of a group's member, as data: what was fetched and not acknowledged, and how much of it was handed out.
use std::collections::VecDeque;

use domain::Timestamp;
use ports::source::Delivery;

/// Messages of one topic partition. What was handed out stays until it is acknowledged, so that a rewind needs no broker.
#[derive(Debug, Default)]
pub(crate) struct Share {
    log: VecDeque<Delivery>,
    /// How many of them are in hand.
    handed: usize,
    /// Bytes of the values that are ready.
    ready_bytes: usize,
    /// The offset behind the last one fetched.
    fetched: Option<u64>,
    /// Everything below was acknowledged.
    acknowledged: u64,
    /// The group takes it away: nothing more is handed out.
    pub(crate) leaving: bool,
    /// The client fetches nothing, because enough is ready.
    pub(crate) full: bool,
}

impl Share {
    /// Takes a fetched message in. One that is already here, or was acknowledged, is not taken twice.
    pub(crate) fn push(&mut self, delivery: Delivery) {
        let offset = delivery.position.offset;
        if self.fetched.is_some_and(|next| offset < next) || offset < self.acknowledged {
            return;
        }
        self.fetched = Some(offset + 1);
        self.ready_bytes += delivery.record.value.len();
        self.log.push_back(delivery);
    }

    /// How many could be handed out.
    pub(crate) fn ready(&self) -> usize {
        if self.leaving { 0 } else { self.log.len() - self.handed }
    }

    /// Bytes of what could be handed out.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// How many are in hand: given out and neither acknowledged nor taken back.
    pub(crate) fn in_hand(&self) -> usize {
        self.handed
    }

    /// Hands out at most so many.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<Delivery> {
        let count = self.ready().min(limit);
        let taken: Vec<Delivery> = self.log.range(self.handed..self.handed + count).cloned().collect();
        self.hand(self.handed + count);
        taken
    }

    /// Forgets what was handed out: it comes again.
    pub(crate) fn rewind(&mut self) {
        self.hand(0);
    }

    /// This offset and all after it come again.
    pub(crate) fn turn_back(&mut self, offset: u64) {
        let before = self.log.partition_point(|delivery| delivery.position.offset < offset);
        self.hand(self.handed.min(before));
    }

    /// Everything up to and with this offset is done.
    pub(crate) fn acknowledge(&mut self, offset: u64) {
        self.acknowledged = self.acknowledged.max(offset + 1);
        let done = self.log.partition_point(|delivery| delivery.position.offset <= offset);
        self.hand(self.handed.max(done));
        self.log.drain(..done);
        self.handed -= done;
    }

    /// Everything below this offset was acknowledged, as far as this member knows.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many messages are here and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.log.len()
    }

    /// When the oldest of them happened.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.log.front().map(|delivery| delivery.record.timestamp)
    }

    /// The offset behind the last one fetched.
    pub(crate) fn fetched(&self) -> Option<u64> {
        self.fetched
    }

    /// So many, counted from the first, are in hand now.
    fn hand(&mut self, count: usize) {
        let bytes = |range: std::ops::Range<usize>| -> usize {
            self.log.range(range).map(|delivery| delivery.record.value.len()).sum()
        };
        if count >= self.handed {
            self.ready_bytes -= bytes(self.handed..count);
        } else {
            self.ready_bytes += bytes(count..self.handed);
        }
        self.handed = count;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ports::broker::{Position, Record};

    use super::*;

    fn share(offsets: &[u64]) -> Share {
        let mut share = Share::default();
        let topic: Arc<str> = "t".into();
        for offset in offsets {
            let record = Record {
                topic: topic.clone(),
                key: "k".into(),
                headers: Vec::new(),
                value: b"12".as_slice().into(),
                timestamp: Timestamp::from_millis(*offset as i64),
            };
            share.push(Delivery { position: Position { topic: topic.clone(), partition: 0, offset: *offset }, record });
        }
        share
    }

    fn offsets(deliveries: &[Delivery]) -> Vec<u64> {
        deliveries.iter().map(|delivery| delivery.position.offset).collect()
    }

    #[test]
    fn a_message_is_taken_in_once() {
        let share = share(&[3, 4, 4, 3, 7]);

        assert_eq!((share.ready(), share.ready_bytes(), share.fetched()), (3, 6, Some(8)));
    }

    #[test]
    fn what_is_in_hand_comes_again_only_after_a_rewind() {
        let mut share = share(&[1, 2, 3]);
        assert_eq!(offsets(&share.take(2)), [1, 2]);
        assert_eq!(offsets(&share.take(2)), [3]);

        share.acknowledge(1);
        share.rewind();

        assert_eq!((share.in_hand(), share.ready_bytes()), (0, 4));
        assert_eq!(offsets(&share.take(9)), [2, 3]);
    }

    #[test]
    fn turning_back_leaves_what_came_before_in_hand() {
        let mut share = share(&[1, 5, 9]);
        share.take(3);

        share.turn_back(5);

        assert_eq!((share.in_hand(), offsets(&share.take(9))), (1, vec![5, 9]));
    }

    #[test]
    fn an_acknowledgement_may_skip_and_never_goes_back() {
        let mut share = share(&[1, 2, 3]);
        share.take(1);

        share.acknowledge(2);
        share.acknowledge(1);

        assert_eq!((share.unacknowledged(), share.in_hand(), share.acknowledged()), (1, 0, 3));
        assert_eq!(share.oldest(), Some(Timestamp::from_millis(3)));
    }

    #[test]
    fn a_share_that_leaves_hands_nothing_out() {
        let mut share = share(&[1]);
        share.leaving = true;

        assert_eq!((share.ready(), share.take(1).len()), (0, 0));
    }
}
