//! What this process remembers of the log: which topics there are, how far each of their partitions reaches, and who waits for more.
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::error::CommandResult;

/// Bits of a place in the log that hold the offset; the bits above hold the topic partition's number.
pub(crate) const OFFSET_BITS: u32 = 40;

/// A topic's partitions are numbered one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogTopic {
    /// Number of its partition 0.
    pub(crate) first: u32,
    /// How many it has.
    pub(crate) partitions: u32,
}

/// The one key of a record: sequential within a topic partition, so that appending fills the tree at one end.
pub(crate) fn place(number: u32, offset: u64) -> i64 {
    (i64::from(number) << OFFSET_BITS) | offset as i64
}

/// The offset of a place.
pub(crate) fn offset_of(place: i64) -> u64 {
    (place & ((1 << OFFSET_BITS) - 1)) as u64
}

/// Shared by the writer, which advances it after each commit, and by those who read. It may lag behind another process's appends, never
/// run ahead of a commit.
#[derive(Default)]
pub(crate) struct LogEnds {
    topics: RwLock<HashMap<Arc<str>, LogTopic>>,
    ends: RwLock<HashMap<u32, u64>>,
    arrived: Notify,
}

impl LogEnds {
    /// A topic known to this process, and its name as everyone shares it.
    pub(crate) fn topic(&self, name: &str) -> Option<(Arc<str>, LogTopic)> {
        self.topics.read().get_key_value(name).map(|(name, topic)| (name.clone(), *topic))
    }

    /// Remembers a topic that is committed.
    pub(crate) fn learn(&self, name: Arc<str>, topic: LogTopic) {
        self.topics.write().insert(name, topic);
    }

    /// The next offset of a topic partition.
    pub(crate) fn end(&self, number: u32) -> u64 {
        self.ends.read().get(&number).copied().unwrap_or(0)
    }

    /// Records were committed: moves the ends and wakes who waits.
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

    /// Told with each advance.
    pub(crate) fn arrived(&self) -> &Notify {
        &self.arrived
    }

    /// Reads the ends from the file: what another process appended beside us.
    pub(crate) fn refresh(&self, sql: &rusqlite::Connection) -> CommandResult<()> {
        let mut statement =
            sql.prepare_cached("SELECT number, next_offset FROM topic_partition WHERE next_offset > 0")?;
        let ends = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
        let ends: Vec<(u32, u64)> = ends.collect::<Result<_, _>>()?;
        let news: Vec<_> = ends.into_iter().filter(|(number, end)| self.end(*number) < *end).collect();
        self.advance(&news);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_sort_by_partition_and_then_by_offset() {
        assert!(place(1, 0) > place(0, (1 << OFFSET_BITS) - 1));
        assert!(place(3, 8) > place(3, 7));
        assert_eq!(offset_of(place(700, 12_345)), 12_345);
    }
}
