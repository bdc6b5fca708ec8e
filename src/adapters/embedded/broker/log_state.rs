//! In-memory state of the log: the topics, the end of each topic partition, and the notification of new records.
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::error::CommandResult;

/// Number of low bits of a record's id (column `log.place`) that contain the offset; the higher bits contain the topic partition's number.
pub(crate) const OFFSET_BITS: u32 = 40;

/// A topic of the log. Its partitions have consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogTopic {
    /// Number of the topic's partition 0.
    pub(crate) first: u32,
    /// Number of partitions of the topic.
    pub(crate) partitions: u32,
}

/// The id of a record in the table `log` (column `place`): sequential within a topic partition, so that appends fill the B-tree at one end.
pub(crate) fn log_id(number: u32, offset: u64) -> i64 {
    (i64::from(number) << OFFSET_BITS) | offset as i64
}

/// The offset in an id that [`log_id`] returned.
pub(crate) fn offset_in(id: i64) -> u64 {
    (id & ((1 << OFFSET_BITS) - 1)) as u64
}

/// Topics and ends, shared by the writer, which advances them after each commit, and the readers. They may lag behind another process's
/// appends, but never include an uncommitted record.
#[derive(Default)]
pub(crate) struct LogState {
    topics: RwLock<HashMap<Arc<str>, LogTopic>>,
    /// The next offset of each topic partition, by the partition's number.
    ends: RwLock<HashMap<u32, u64>>,
    advanced: Notify,
}

impl LogState {
    /// A topic that this process knows, and its shared name.
    pub(crate) fn topic(&self, name: &str) -> Option<(Arc<str>, LogTopic)> {
        self.topics.read().get_key_value(name).map(|(name, topic)| (name.clone(), *topic))
    }

    /// The topics of these that this process does not know yet.
    pub(crate) fn unknown_topics<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let topics = self.topics.read();
        names.iter().copied().filter(|name| !topics.contains_key(*name)).collect()
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
            let known_end = known.entry(*number).or_default();
            *known_end = (*known_end).max(*end);
        }
        drop(known);
        self.advanced.notify_waiters();
    }

    /// Notified by each [`LogState::advance`].
    pub(crate) fn advanced(&self) -> &Notify {
        &self.advanced
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
    fn ids_of_records_sort_by_partition_and_then_by_offset() {
        assert!(log_id(1, 0) > log_id(0, (1 << OFFSET_BITS) - 1));
        assert!(log_id(3, 8) > log_id(3, 7));
        assert_eq!(offset_in(log_id(700, 12_345)), 12_345);
    }
}
