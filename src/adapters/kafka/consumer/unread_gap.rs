//! UnreadGap: offsets before a message that its group has not read, and whether the broker had removed their records.

/// Offsets that the end of a transaction takes: one, for its control record, which no member receives as a message.
const MARKERS: u64 = 1;

/// Offsets that a member skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnreadGap {
    /// The offset after the last message that the group has read.
    pub(crate) read_until: u64,
    /// The offset of the next message that the member received.
    pub(crate) offset: u64,
    /// The statistics of the client that were known then. Later ones have the log start of the fetch that brought the message, or a later one.
    pub(crate) statistics: u64,
}

impl UnreadGap {
    /// The gap before a message, if it is larger than the end of one transaction.
    pub(crate) fn before(offset: u64, read_until: u64, statistics: u64) -> Option<Self> {
        (offset > read_until + MARKERS).then_some(Self { read_until, offset, statistics })
    }

    /// Whether the log began in the gap. A gap behind the log's start has aborted or compacted records. A log that begins behind the message lost
    /// its records after the member had received them.
    pub(crate) fn was_removed(&self, log_start: u64) -> bool {
        log_start > self.read_until + MARKERS && log_start <= self.offset
    }

    pub(crate) fn report(&self, group: &str, topic: &str, partition: u32) {
        let Self { read_until, offset, .. } = *self;
        tracing::warn!(
            event = "unread_records_removed",
            group,
            topic,
            partition,
            read_until,
            offset,
            "records of {topic}/{partition} were removed before the group {group} read them; it continues at offset {offset}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_offsets_before_the_start_of_the_log_were_removed() {
        let gap = UnreadGap::before(20, 10, 0).expect("a gap");

        let removed = [0, 10, 11, 12, 20, 21].map(|log_start| gap.was_removed(log_start));

        assert_eq!(removed, [false, false, false, true, true, false]);
    }

    #[test]
    fn marker_of_a_transaction_is_no_gap() {
        assert!([10, 11].iter().all(|offset| UnreadGap::before(*offset, 10, 0).is_none()));
        assert!(UnreadGap::before(12, 10, 0).is_some());
    }
}
