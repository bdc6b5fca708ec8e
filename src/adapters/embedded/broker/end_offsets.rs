//! In-memory state of the log: the topics, the end of each topic partition, and the notification of new records.
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::error::CommandResult;

/// Number of low bits of the column `place` that contain the offset; the higher bits contain the topic partition's number.
pub(crate) const OFFSET_BITS: u32 = 40;

/// A topic of the log. Its partitions have consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogTopic {
    /// Number of the topic's partition 0.
    pub(crate) first: u32,
    /// Number of partitions of the topic.
    pub(crate) partitions: u32,
}

/// The primary key of a record: sequential within a topic partition, so that appends fill the B-tree at one end.
pub(crate) fn record_key(number: u32, offset: u64) -> i64 {
    (i64::from(number) << OFFSET_BITS) | offset as i64
}

/// The offset in a primary key that [`record_key`] returned.
pub(crate) fn offset_of(place: i64) -> u64 {
    (place & ((1 << OFFSET_BITS) - 1)) as u64
}

/// Topics and ends, shared by the writer, which advances them after each commit, and the readers. They may lag behind another process's
/// appends, but never include an uncommitted record.
#[derive(Default)]
pub(crate) struct EndOffsets {
    topics: RwLock<HashMap<Arc<str>, LogTopic>>,
    /// Topics that clients may write to although this process has not used them yet.
    admitted: RwLock<HashSet<String>>,
    ends: RwLock<HashMap<u32, u64>>,
    arrived: Notify,
}

impl EndOffsets {
    /// A topic that this process knows, and its shared name.
    pub(crate) fn topic(&self, name: &str) -> Option<(Arc<str>, LogTopic)> {
        self.topics.read().get_key_value(name).map(|(name, topic)| (name.clone(), *topic))
    }

    /// Whether clients may write to a topic without another look at the log.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.topics.read().contains_key(name) || self.admitted.read().contains(name)
    }

    /// Admits topics, all or none, while the log has at most `most` with them. Those that were admitted before and do not exist yet count too.
    pub(crate) fn admit(&self, existing: &[String], names: &[&str], most: usize) -> bool {
        let mut admitted = self.admitted.write();
        let known: HashSet<&str> = existing.iter().chain(admitted.iter()).map(String::as_str).collect();
        let new: HashSet<&str> = names.iter().copied().filter(|name| !known.contains(name)).collect();
        if !new.is_empty() && known.len() + new.len() > most {
            return false;
        }
        let new: Vec<String> = new.into_iter().map(str::to_owned).collect();
        admitted.extend(new);
        true
    }

    /// Adds a topic that was committed.
    pub(crate) fn add_topic(&self, name: Arc<str>, topic: LogTopic) {
        self.topics.write().insert(name, topic);
    }

    /// The next offset of a topic partition.
    pub(crate) fn end(&self, number: u32) -> u64 {
        self.ends.read().get(&number).copied().unwrap_or(0)
    }

    /// Raises the ends after a commit and notifies every waiting poll.
    pub(crate) fn advance(&self, ends: &[(u32, u64)]) {
        if ends.is_empty() {
            return;
        }
        let mut known = self.ends.write();
        for (number, end) in ends {
            let at = known.entry(*number).or_default();
            *at = (*at).max(*end);
        }
        drop(known);
        self.arrived.notify_waiters();
    }

    /// Notified by each [`EndOffsets::advance`].
    pub(crate) fn arrived(&self) -> &Notify {
        &self.arrived
    }

    /// Reads the ends from the file, because other processes append as well.
    pub(crate) fn refresh(&self, sql: &rusqlite::Connection) -> CommandResult<()> {
        let mut statement =
            sql.prepare_cached("SELECT number, next_offset FROM topic_partition WHERE next_offset > 0")?;
        let ends = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
        let ends: Vec<(u32, u64)> = ends.collect::<Result<_, _>>()?;
        let newer: Vec<_> = ends.into_iter().filter(|(number, end)| self.end(*number) < *end).collect();
        self.advance(&newer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_keys_sort_by_partition_and_then_by_offset() {
        assert!(record_key(1, 0) > record_key(0, (1 << OFFSET_BITS) - 1));
        assert!(record_key(3, 8) > record_key(3, 7));
        assert_eq!(offset_of(record_key(700, 12_345)), 12_345);
    }
}
