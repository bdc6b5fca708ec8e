//! The highest committed token of each outbox partition, kept between reads of the compacted watermark topic. A read takes only the records
//! that were committed since the last one; the first read is bounded by the topic's compaction.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ports::Error;
use ports::partitions::Token;
use rdkafka::Message;

use crate::options::Options;
use crate::topics::partition_reader::{PartitionOffsets, PartitionReader, ReadControl};

/// Longest read of all partitions.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// What has been read of the watermark topic, for each of its partitions.
#[derive(Default)]
pub(crate) struct WatermarkCache(BTreeMap<u32, PartitionRecords>);

/// What has been read of one partition.
#[derive(Debug, Default, PartialEq, Eq)]
struct PartitionRecords {
    /// Every committed record below this offset has been read.
    end: u64,
    /// The last record read. The next read begins with it: another record in its place proves that the topic was deleted and created again.
    last: Option<RecordStamp>,
    /// The highest token of each outbox partition.
    tokens: BTreeMap<u32, Token>,
}

/// Offset and timestamp of a record.
type RecordStamp = (i64, Option<i64>);

impl WatermarkCache {
    /// The highest token of an outbox partition over all partitions of the topic. Sessions of earlier versions wrote it to another partition
    /// than today's, and each transactional id writes to its own.
    pub(crate) fn highest(&self, outbox_partition: u32) -> Option<Token> {
        self.0.values().filter_map(|records| records.tokens.get(&outbox_partition).copied()).max()
    }

    /// Reads what was committed since the last call. Without an error, it includes everything below the last stable offsets at the call.
    pub(crate) fn refresh(
        &mut self,
        reader: &PartitionReader,
        options: &Options,
        partitions: u32,
    ) -> Result<(), Error> {
        let topic = options.watermark_topic();
        let names: Vec<(String, u32)> = (0..partitions).map(|partition| (topic.clone(), partition)).collect();
        let ends = reader.stable_ends(&names)?;
        let ends = (0..).zip(&names).map(|(partition, name)| (partition, ends.get(name).copied().unwrap_or(0)));
        let ends: BTreeMap<u32, u64> = ends.collect();
        // A topic that was deleted and created again is read from its beginning.
        self.0.retain(|partition, records| ends.get(partition).is_some_and(|end| *end >= records.end));
        let deadline = Instant::now() + READ_TIMEOUT;
        loop {
            let known = |partition: &u32| self.0.get(partition).map_or(0, |records| records.end);
            let grown: Vec<u32> = ends.iter().filter(|(at, end)| **end > known(at)).map(|(at, _)| *at).collect();
            if grown.is_empty() {
                return Ok(());
            }
            self.read(reader, options, &topic, &grown, deadline)?;
            for partition in grown {
                if let Some(records) = self.0.get_mut(&partition) {
                    records.end = ends[&partition];
                }
            }
        }
    }

    /// Reads these partitions from the last known record on. Forgets those with another record in its place: they are to be read again.
    fn read(
        &mut self,
        reader: &PartitionReader,
        options: &Options,
        topic: &str,
        partitions: &[u32],
        deadline: Instant,
    ) -> Result<(), Error> {
        let mut expected: BTreeMap<u32, RecordStamp> = BTreeMap::new();
        for partition in partitions {
            let last = self.0.entry(*partition).or_default().last;
            expected.extend(last.map(|last| (*partition, last)));
        }
        let unread = partitions.iter().filter(|partition| !expected.contains_key(partition));
        let starts: PartitionOffsets =
            reader.start_offsets(&unread.map(|partition| (topic.to_owned(), *partition)).collect::<Vec<_>>())?;
        let start = |partition: &u32| match expected.get(partition) {
            Some((offset, _)) => offset.unsigned_abs(),
            None => starts.get(&(topic.to_owned(), *partition)).copied().unwrap_or(0),
        };
        let from: Vec<(u32, u64)> = partitions.iter().map(|partition| (*partition, start(partition))).collect();
        reader.read(topic, &from, deadline, |message| {
            let (partition, stamp) =
                (message.partition().unsigned_abs(), (message.offset(), message.timestamp().to_millis()));
            if expected.remove(&partition).is_some_and(|last| last != stamp) {
                self.0.remove(&partition);
            }
            if let Some(records) = self.0.get_mut(&partition) {
                records.add(stamp, watermark(message.key(), message.payload(), &options.installation));
            }
            ReadControl::Continue
        })?;
        // The last known record has gone, and none came after it.
        for partition in expected.keys() {
            self.0.remove(partition);
        }
        Ok(())
    }
}

impl PartitionRecords {
    fn add(&mut self, stamp: RecordStamp, watermark: Option<(u32, Token)>) {
        self.last = Some(stamp);
        if let Some((outbox_partition, token)) = watermark {
            let highest = self.tokens.entry(outbox_partition).or_default();
            *highest = token.max(*highest);
        }
    }
}

/// The outbox partition and the token of a watermark record; `None` when the record belongs to another installation.
fn watermark(key: Option<&[u8]>, value: Option<&[u8]>, installation: &str) -> Option<(u32, Token)> {
    let outbox_partition = std::str::from_utf8(key?).ok()?.parse().ok()?;
    let (token, owner) = std::str::from_utf8(value?).ok()?.split_once(' ')?;
    if owner != installation {
        return None;
    }
    Some((outbox_partition, token.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermark_of_another_installation_is_ignored() {
        assert_eq!(watermark(Some(b"3"), Some(b"17 own"), "own"), Some((3, 17)));
        assert_eq!(watermark(Some(b"3"), Some(b"17 other"), "own"), None);
        for (key, value) in [("3", "17"), ("3", ""), ("x", "17 own"), ("", "17 own")] {
            assert_eq!(watermark(Some(key.as_bytes()), Some(value.as_bytes()), "own"), None, "{key} {value}");
        }
        assert_eq!(watermark(None, Some(b"17 own"), "own"), None);
        assert_eq!(watermark(Some(b"3"), None, "own"), None);
    }

    #[test]
    fn highest_token_counts_over_all_partitions_of_the_topic() {
        let mut cache = WatermarkCache::default();
        let mut add = |topic_partition, offset, watermark| {
            cache.0.entry(topic_partition).or_default().add((offset, None), watermark);
        };
        add(0, 0, Some((0, 7)));
        add(3, 0, Some((0, 9)));
        add(3, 1, Some((0, 8)));
        add(3, 2, Some((2, 4)));
        add(3, 3, None);

        assert_eq!([0, 1, 2].map(|partition| cache.highest(partition)), [Some(9), None, Some(4)]);
        assert_eq!(cache.0[&3].last, Some((3, None)));
    }
}
