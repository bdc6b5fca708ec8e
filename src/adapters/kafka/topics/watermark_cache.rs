//! The highest committed token of each outbox partition, kept between reads of the compacted watermark topic. A read takes only the records
//! that were committed since the last one; the first read is bounded by the topic's compaction. The same topic registers the transactional ids
//! of the installation, each before its first batch: a store that was rewound no longer knows them.
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ports::Error;
use ports::partitions::{PartitionNo, Token};
use rdkafka::Message;

use crate::options::Options;
use crate::topics::partition_reader::{PartitionOffsets, PartitionReader, ReadControl, ReadSpan};

/// Longest read of all partitions.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Precedes the transactional id in the key of a record that registers it. Earlier versions skip such records.
const REGISTRATION: &str = "producer:";

/// The key of the record that registers a transactional id; its value is the installation.
pub(crate) fn registration_key(transactional_id: &str) -> String {
    format!("{REGISTRATION}{transactional_id}")
}

/// Content of the watermark topic about the installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstallationRecords {
    /// The transactional ids under which sessions may be open, with the partitions of the topic that register each.
    pub(crate) registrations: BTreeMap<String, BTreeSet<u32>>,
    /// The highest committed token of each outbox partition.
    pub(crate) watermarks: BTreeMap<PartitionNo, Token>,
}

/// The part of the watermark topic that has been read, for each of its partitions.
#[derive(Default)]
pub(crate) struct WatermarkCache(BTreeMap<u32, PartitionRecords>);

/// The part of one partition that has been read.
#[derive(Debug, Default, PartialEq, Eq)]
struct PartitionRecords {
    /// Every committed record below this offset has been read.
    end: u64,
    /// The last record read. The next read begins with it: another record at its offset proves that the topic was deleted and created again.
    last: Option<RecordIdentity>,
    /// The highest token of each outbox partition.
    tokens: BTreeMap<u32, Token>,
    /// The transactional ids that are registered in it.
    transactional_ids: BTreeSet<String>,
}

/// A record of the watermark topic that belongs to the installation.
#[derive(Debug, PartialEq, Eq)]
enum InstallationRecord {
    /// A batch of the outbox partition was committed under the token.
    Watermark(u32, Token),
    /// Sessions may be open under the transactional id.
    Registration(String),
    /// The transactional id was fenced, and no session was opened under it since.
    Removal(String),
}

/// Offset and timestamp of a record.
type RecordIdentity = (i64, Option<i64>);

impl WatermarkCache {
    /// The highest token of an outbox partition over all partitions of the topic. Sessions of earlier versions wrote it to another partition
    /// than today's, and each transactional id writes to its own.
    pub(crate) fn highest(&self, outbox_partition: u32) -> Option<Token> {
        self.0.values().filter_map(|records| records.tokens.get(&outbox_partition).copied()).max()
    }

    /// The highest token of each outbox partition, and all registered transactional ids.
    pub(crate) fn all(&self) -> InstallationRecords {
        let mut all = InstallationRecords::default();
        for (partition, records) in &self.0 {
            for transactional_id in &records.transactional_ids {
                all.registrations.entry(transactional_id.clone()).or_default().insert(*partition);
            }
            for (outbox_partition, token) in &records.tokens {
                let highest = all.watermarks.entry(PartitionNo(*outbox_partition)).or_default();
                *highest = (*token).max(*highest);
            }
        }
        all
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
            let grown: BTreeMap<u32, u64> = ends
                .iter()
                .filter(|(partition, end)| **end > known(partition))
                .map(|(partition, end)| (*partition, *end))
                .collect();
            if grown.is_empty() {
                return Ok(());
            }
            self.read(reader, options, &topic, &grown, deadline)?;
            for (partition, end) in grown {
                if let Some(records) = self.0.get_mut(&partition) {
                    records.end = end;
                }
            }
        }
    }

    /// Reads these partitions from the last known record to their ends. Forgets those with another record at that offset: they are to be read again.
    fn read(
        &mut self,
        reader: &PartitionReader,
        options: &Options,
        topic: &str,
        ends: &BTreeMap<u32, u64>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let mut expected: BTreeMap<u32, RecordIdentity> = BTreeMap::new();
        for partition in ends.keys() {
            let last = self.0.entry(*partition).or_default().last;
            expected.extend(last.map(|last| (*partition, last)));
        }
        let unread = ends.keys().filter(|partition| !expected.contains_key(partition));
        let starts: PartitionOffsets =
            reader.start_offsets(&unread.map(|partition| (topic.to_owned(), *partition)).collect::<Vec<_>>())?;
        let start = |partition: &u32| match expected.get(partition) {
            Some((offset, _)) => offset.unsigned_abs(),
            None => starts.get(&(topic.to_owned(), *partition)).copied().unwrap_or(0),
        };
        let span =
            |(partition, end): (&u32, &u64)| ReadSpan { partition: *partition, from: start(partition), end: *end };
        let spans: Vec<ReadSpan> = ends.iter().map(span).collect();
        reader.read(topic, &spans, deadline, |message| {
            let (partition, identity) =
                (message.partition().unsigned_abs(), (message.offset(), message.timestamp().to_millis()));
            if expected.remove(&partition).is_some_and(|last| last != identity) {
                self.0.remove(&partition);
            }
            if let Some(records) = self.0.get_mut(&partition) {
                records.add(identity, installation_record(message.key(), message.payload(), &options.installation));
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
    fn add(&mut self, identity: RecordIdentity, record: Option<InstallationRecord>) {
        self.last = Some(identity);
        match record {
            Some(InstallationRecord::Watermark(outbox_partition, token)) => {
                let highest = self.tokens.entry(outbox_partition).or_default();
                *highest = token.max(*highest);
            }
            Some(InstallationRecord::Registration(transactional_id)) => {
                self.transactional_ids.insert(transactional_id);
            }
            Some(InstallationRecord::Removal(transactional_id)) => {
                self.transactional_ids.remove(&transactional_id);
            }
            None => {}
        }
    }
}

/// Parses a record; `None` when it belongs to another installation. A removal names none: it has no effect on the ids of another.
fn installation_record(key: Option<&[u8]>, value: Option<&[u8]>, installation: &str) -> Option<InstallationRecord> {
    let key = std::str::from_utf8(key?).ok()?;
    let registered = key.strip_prefix(REGISTRATION).map(str::to_owned);
    let Some(value) = value else { return registered.map(InstallationRecord::Removal) };
    let value = std::str::from_utf8(value).ok()?;
    if let Some(transactional_id) = registered {
        return (value == installation).then_some(InstallationRecord::Registration(transactional_id));
    }
    let (token, owner) = value.split_once(' ')?;
    if owner != installation {
        return None;
    }
    Some(InstallationRecord::Watermark(key.parse().ok()?, token.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_another_installation_are_ignored() {
        let parse = |key: &str, value: &str| installation_record(Some(key.as_bytes()), Some(value.as_bytes()), "own");
        assert_eq!(parse("3", "17 own"), Some(InstallationRecord::Watermark(3, 17)));
        assert_eq!(parse(&registration_key("a-1"), "own"), Some(InstallationRecord::Registration("a-1".into())));
        for (key, value) in [
            ("3", "17 other"),
            ("3", "17"),
            ("3", ""),
            ("x", "17 own"),
            ("", "17 own"),
            ("producer:a", "other"),
            ("producer:a", "17 own"),
        ] {
            assert_eq!(parse(key, value), None, "{key} {value}");
        }
        assert_eq!(installation_record(None, Some(b"17 own"), "own"), None);
        assert_eq!(installation_record(Some(b"3"), None, "own"), None);
        let removal = installation_record(Some(registration_key("a-1").as_bytes()), None, "own");
        assert_eq!(removal, Some(InstallationRecord::Removal("a-1".into())));
    }

    #[test]
    fn highest_token_counts_over_all_partitions_of_the_topic() {
        let mut cache = WatermarkCache::default();
        let mut add = |topic_partition, offset, record| {
            cache.0.entry(topic_partition).or_default().add((offset, None), record);
        };
        let watermark = |partition, token| Some(InstallationRecord::Watermark(partition, token));
        let registration = |id: &str| Some(InstallationRecord::Registration(id.into()));
        add(0, 0, watermark(0, 7));
        add(0, 1, registration("a"));
        add(3, 0, watermark(0, 9));
        add(3, 1, watermark(0, 8));
        add(3, 2, watermark(2, 4));
        add(3, 3, registration("b"));
        add(3, 4, registration("c"));
        add(3, 5, Some(InstallationRecord::Removal("c".into())));
        add(3, 6, Some(InstallationRecord::Removal("a".into())));
        add(3, 7, None);

        assert_eq!([0, 1, 2].map(|partition| cache.highest(partition)), [Some(9), None, Some(4)]);
        assert_eq!(cache.0[&3].last, Some((7, None)));
        let InstallationRecords { registrations, watermarks } = cache.all();
        assert_eq!(watermarks, BTreeMap::from([(PartitionNo(0), 9), (PartitionNo(2), 4)]));
        let expected = [("a", 0), ("b", 3)].map(|(id, partition)| (id.to_owned(), BTreeSet::from([partition])));
        assert_eq!(registrations, BTreeMap::from(expected), "a removal is of its own partition");
    }
}
