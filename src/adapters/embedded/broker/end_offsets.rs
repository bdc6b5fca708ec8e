//! In-memory state of the log: the topics, the end of each topic partition, and the notification of new records.
use std::collections::{HashMap, HashSet};
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
pub(crate) struct EndOffsets {
    topics: RwLock<HashMap<Arc<str>, LogTopic>>,
    /// Topics that clients may write to although this process has not used them yet, with the number of admissions that were not released.
    admitted: RwLock<HashMap<String, u64>>,
    ends: RwLock<HashMap<u32, u64>>,
    advanced: Notify,
}

impl EndOffsets {
    /// A topic that this process knows, and its shared name.
    pub(crate) fn topic(&self, name: &str) -> Option<(Arc<str>, LogTopic)> {
        self.topics.read().get_key_value(name).map(|(name, topic)| (name.clone(), *topic))
    }

    /// Admits topics without reading the file, if all of them are in use or admitted already.
    pub(crate) fn admit_known(&self, names: &[&str]) -> bool {
        let topics = self.topics.read();
        let unused: Vec<&str> = names.iter().copied().filter(|name| !topics.contains_key(*name)).collect();
        if unused.is_empty() {
            return true;
        }
        let mut admitted = self.admitted.write();
        let all_known = unused.iter().all(|name| admitted.contains_key(*name));
        if all_known {
            add_admissions(&mut admitted, unused);
        }
        all_known
    }

    /// Admits topics, all or none, while the log has at most `topics_max` with them. Those that were admitted before and do not exist yet count too.
    pub(crate) fn admit(&self, existing: &[String], names: &[&str], topics_max: usize) -> bool {
        let mut admitted = self.admitted.write();
        let existing: HashSet<&str> = existing.iter().map(String::as_str).collect();
        let missing: HashSet<&str> = names.iter().copied().filter(|name| !existing.contains(name)).collect();
        let new = missing.iter().filter(|name| !admitted.contains_key(**name)).count();
        let others = admitted.keys().filter(|name| !existing.contains(name.as_str())).count();
        if new > 0 && existing.len() + others + new > topics_max {
            return false;
        }
        add_admissions(&mut admitted, missing);
        true
    }

    /// Takes back one admission of each of these topics; those of other requests stay.
    pub(crate) fn release(&self, names: &[&str]) {
        let mut admitted = self.admitted.write();
        for name in names {
            if let Some(admissions) = admitted.get_mut(*name) {
                *admissions -= 1;
                if *admissions == 0 {
                    admitted.remove(*name);
                }
            }
        }
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

    /// Notified by each [`EndOffsets::advance`].
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

fn add_admissions<'a>(admitted: &mut HashMap<String, u64>, names: impl IntoIterator<Item = &'a str>) {
    for name in names {
        *admitted.entry(name.to_owned()).or_default() += 1;
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
