//! Ids of producer sessions: the transactional id, a random number that makes the id unique, and where the session's watermarks lie.
use std::hash::{BuildHasher, Hasher, RandomState};

use ports::partitions::{PartitionNo, ProducerSessionId};

/// Separates the transactional id from the rest of a session's id.
const EXACTLY_ONCE: char = '#';
/// The same for a session without transactions, which the broker cannot fence and which writes no watermarks.
const AT_LEAST_ONCE: char = '~';
/// Precedes the session's partition of the watermark topic.
const WATERMARK_PARTITION: char = '@';

/// The parts of a session's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionIdParts<'a> {
    pub(crate) transactional_id: &'a str,
    pub(crate) watermarks: WatermarkPartition,
}

/// Which partition of the watermark topic holds the watermarks that a session writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatermarkPartition {
    /// The session has no transactions and writes none.
    None,
    /// All of them are in this partition.
    Partition(u32),
    /// The watermark of outbox partition p is in partition p: the layout of versions that recorded no partition in the id.
    OutboxPartition,
}

impl WatermarkPartition {
    /// The partition of the watermark topic with the watermark of this outbox partition.
    pub(crate) fn for_outbox_partition(self, partition: PartitionNo) -> Option<u32> {
        match self {
            WatermarkPartition::None => None,
            WatermarkPartition::Partition(own) => Some(own),
            WatermarkPartition::OutboxPartition => Some(partition.0),
        }
    }
}

/// A new id, for a session whose watermarks lie in this partition; without one, for a session without transactions.
pub(crate) fn new(transactional_id: &str, watermark_partition: Option<u32>) -> ProducerSessionId {
    let number = random_number();
    let id = match watermark_partition {
        Some(partition) => {
            format!("{transactional_id}{EXACTLY_ONCE}{number:016x}{WATERMARK_PARTITION}{partition}")
        }
        None => format!("{transactional_id}{AT_LEAST_ONCE}{number:016x}"),
    };
    ProducerSessionId(id.into())
}

/// The parts of an id. An id without separator is a transactional id alone.
pub(crate) fn parse(session: &ProducerSessionId) -> SessionIdParts<'_> {
    let id = &*session.0;
    let (transactional_id, suffix) = id.split_at(id.rfind([EXACTLY_ONCE, AT_LEAST_ONCE]).unwrap_or(id.len()));
    let partition = suffix.rsplit_once(WATERMARK_PARTITION).and_then(|(_, partition)| partition.parse().ok());
    let watermarks = match partition {
        _ if suffix.starts_with(AT_LEAST_ONCE) => WatermarkPartition::None,
        Some(partition) => WatermarkPartition::Partition(partition),
        None => WatermarkPartition::OutboxPartition,
    };
    SessionIdParts { transactional_id, watermarks }
}

/// The standard library seeds the states of a thread from the system's entropy, and no two of them are equal.
fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(id: &str) -> (String, WatermarkPartition) {
        let id = ProducerSessionId(id.into());
        let SessionIdParts { transactional_id, watermarks } = parse(&id);
        (transactional_id.to_owned(), watermarks)
    }

    #[test]
    fn new_ids_parse_to_their_parts_and_differ() {
        let (one, other) = (new("a#b@c~d", Some(7)), new("a#b@c~d", Some(7)));

        assert_ne!(one, other);
        assert_eq!(parsed(&one.0), ("a#b@c~d".to_owned(), WatermarkPartition::Partition(7)));
        assert_eq!(parsed(&new("a#b@c~d", None).0), ("a#b@c~d".to_owned(), WatermarkPartition::None));
    }

    #[test]
    fn ids_of_earlier_versions_have_their_watermarks_in_the_outbox_partition() {
        for id in ["t-1#0123456789abcdef", "t-1"] {
            let (transactional_id, watermarks) = parsed(id);
            assert_eq!((&*transactional_id, watermarks.for_outbox_partition(PartitionNo(5))), ("t-1", Some(5)), "{id}");
        }
        assert_eq!(parsed("host@8080-1#0123456789abcdef").1, WatermarkPartition::OutboxPartition);
        assert_eq!(parsed("t-1~0123456789abcdef").1.for_outbox_partition(PartitionNo(5)), None);
    }
}
