//! Sizes that the broker refused a moment ago. Each refusal aborts a transaction and names one record, after its company was tried one
//! by one: a stream of records that are too large would hold every other key up. What is as large as one that was refused alone is
//! refused without asking.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::broker::Record;

use crate::options::Compression;

/// How long a refusal is believed: whoever raises the topic's limit and sends parked events again has only so long to wait.
const BELIEVED: Duration = Duration::from_secs(5);

/// What is known of the topics.
pub(crate) struct Sizes {
    /// Compressed, the larger of two records may be the smaller one on the wire.
    comparable: bool,
    /// Of each topic the smallest size that was refused, and when.
    refused: HashMap<Arc<str>, (usize, Instant)>,
}

impl Sizes {
    pub(crate) fn new(compression: Compression) -> Self {
        Self { comparable: compression == Compression::None, refused: HashMap::new() }
    }

    /// The broker refused this record, which was alone in its request.
    pub(crate) fn learn(&mut self, record: &Record, now: Instant) {
        let size = on_the_wire(record);
        let smallest = self.refusing(&record.topic, now).map_or(size, |known| known.min(size));
        self.refused.insert(Arc::clone(&record.topic), (smallest, now));
    }

    /// The size that was refused and that this record has, or more.
    pub(crate) fn refuses(&self, record: &Record, now: Instant) -> Option<usize> {
        self.refusing(&record.topic, now).filter(|refused| self.comparable && on_the_wire(record) >= *refused)
    }

    fn refusing(&self, topic: &str, now: Instant) -> Option<usize> {
        let (size, at) = self.refused.get(topic)?;
        (now.duration_since(*at) < BELIEVED).then_some(*size)
    }
}

/// Bytes of a record that is alone in its batch, but for what is the same for all (record format 2).
fn on_the_wire(Record { key, headers, value, .. }: &Record) -> usize {
    let sized = |length: usize| varint(length) + length;
    let headers: usize = headers.iter().map(|(name, value)| sized(name.len()) + sized(value.len())).sum();
    sized(key.len()) + sized(value.len()) + headers
}

/// Bytes of a length as a zigzag varint.
fn varint(length: usize) -> usize {
    let bits = usize::BITS - (length << 1).leading_zeros();
    bits.max(1).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    fn record(topic: &str, bytes: usize) -> Record {
        let value = vec![b'x'; bytes].into();
        let headers = vec![("ce_id".into(), b"1".as_slice().into())];
        Record { topic: topic.into(), key: "k".into(), headers, value, timestamp: Timestamp::default() }
    }

    #[test]
    fn what_is_as_large_as_a_refused_one_is_refused_for_a_while() {
        let (mut sizes, now) = (Sizes::new(Compression::None), Instant::now());
        assert_eq!(sizes.refuses(&record("a", 5_000), now), None);

        sizes.learn(&record("a", 4_000), now);
        sizes.learn(&record("a", 6_000), now);

        assert!(sizes.refuses(&record("a", 4_000), now).is_some());
        assert_eq!(sizes.refuses(&record("a", 3_999), now), None);
        assert_eq!(sizes.refuses(&record("b", 9_000), now), None, "another topic has another limit");
        assert_eq!(sizes.refuses(&record("a", 9_000), now + BELIEVED), None, "the limit may have been raised");
        sizes.learn(&record("a", 7_000), now + BELIEVED);
        assert_eq!(sizes.refuses(&record("a", 6_999), now + BELIEVED), None);
    }

    #[test]
    fn compressed_sizes_are_not_compared() {
        let (mut sizes, now) = (Sizes::new(Compression::Lz4), Instant::now());
        sizes.learn(&record("a", 4_000), now);
        assert_eq!(sizes.refuses(&record("a", 9_000), now), None);
    }

    #[test]
    fn lengths_take_as_many_bytes_as_zigzag_varints_do() {
        assert_eq!([0, 63, 64, 8_191, 8_192, 1_048_575].map(varint), [1, 1, 2, 2, 3, 3]);
    }
}
