//! Record sizes that the broker refused a moment ago. Each refusal aborts a transaction and names one record, after the records of its
//! request were sent one by one: a stream of oversized records would block every other key. The session therefore refuses a record by
//! itself when it is at least as large as one that the broker has just refused alone.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::broker::Record;

use crate::options::Compression;
use crate::protocol::record_batch::varint_size;

/// How long a refusal stays valid. After an operator raises the topic's limit and redrives parked events, it delays them by this much.
const REFUSAL_TTL: Duration = Duration::from_secs(5);

/// The smallest refused size of each topic.
pub(crate) struct RefusedSizes {
    /// False with compression: the larger of two records may be the smaller one on the wire.
    are_comparable: bool,
    /// The smallest refused size of a topic, and when the broker refused it.
    by_topic: HashMap<Arc<str>, (usize, Instant)>,
}

impl RefusedSizes {
    pub(crate) fn new(compression: Compression) -> Self {
        Self { are_comparable: compression == Compression::None, by_topic: HashMap::new() }
    }

    /// Stores the size of a record that the broker refused and that was alone in its request.
    pub(crate) fn insert(&mut self, record: &Record, now: Instant) {
        let size = wire_size(record);
        let smallest = self.smallest(&record.topic, now).map_or(size, |known| known.min(size));
        self.by_topic.insert(Arc::clone(&record.topic), (smallest, now));
    }

    /// The size that the broker refused, if this record is at least as large.
    pub(crate) fn refused_size(&self, record: &Record, now: Instant) -> Option<usize> {
        self.smallest(&record.topic, now).filter(|refused| self.are_comparable && wire_size(record) >= *refused)
    }

    fn smallest(&self, topic: &str, now: Instant) -> Option<usize> {
        let (size, refused_at) = self.by_topic.get(topic)?;
        (now.duration_since(*refused_at) < REFUSAL_TTL).then_some(*size)
    }
}

/// Bytes of a record that is alone in its record batch (format 2), without the overhead that is equal for all records.
fn wire_size(Record { key, headers, value, .. }: &Record) -> usize {
    let with_length = |length: usize| varint_size(length as i64) + length;
    let headers: usize = headers.iter().map(|(name, value)| with_length(name.len()) + with_length(value.len())).sum();
    with_length(key.len()) + with_length(value.len()) + headers
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    fn record(topic: &str, bytes: usize) -> Record {
        let value = vec![b'x'; bytes].into();
        let headers = [("ce_id", "1")].into_iter().collect();
        Record { topic: topic.into(), key: "k".into(), headers, value, timestamp: Timestamp::default() }
    }

    #[test]
    fn records_as_large_as_a_refused_one_are_refused_until_the_refusal_expires() {
        let (mut sizes, now) = (RefusedSizes::new(Compression::None), Instant::now());
        assert_eq!(sizes.refused_size(&record("a", 5_000), now), None);

        sizes.insert(&record("a", 4_000), now);
        sizes.insert(&record("a", 6_000), now);

        assert!(sizes.refused_size(&record("a", 4_000), now).is_some());
        assert_eq!(sizes.refused_size(&record("a", 3_999), now), None);
        assert_eq!(sizes.refused_size(&record("b", 9_000), now), None, "another topic has another limit");
        assert_eq!(sizes.refused_size(&record("a", 9_000), now + REFUSAL_TTL), None, "the limit may have been raised");
        sizes.insert(&record("a", 7_000), now + REFUSAL_TTL);
        assert_eq!(sizes.refused_size(&record("a", 6_999), now + REFUSAL_TTL), None);
    }

    #[test]
    fn compressed_sizes_are_not_compared() {
        let (mut sizes, now) = (RefusedSizes::new(Compression::Lz4), Instant::now());
        sizes.insert(&record("a", 4_000), now);
        assert_eq!(sizes.refused_size(&record("a", 9_000), now), None);
    }
}
