//! A member of a consumer group: its topic partitions, their offsets and pauses.
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerRecord, GroupMember, Lag};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::time::Instant;

use crate::broker::log;
use crate::broker::log_state::{LogTopic, log_id};
use crate::consumer::joined_groups::JoinedMember;
use crate::error::CommandResult;
use crate::store::Embedded;

/// A topic partition that is assigned to a member.
#[derive(Clone, Debug)]
pub(crate) struct MemberPartition {
    name: Arc<str>,
    topic: LogTopic,
    partition: u32,
    /// The next offset to deliver.
    next: u64,
    /// The first offset that the group has not acknowledged.
    acknowledged: u64,
    /// The end of the last gap in the records that was logged: a group that reads again logs it once.
    logged_gap_end: u64,
    paused_until: Option<Instant>,
}

impl MemberPartition {
    pub(crate) fn new(name: Arc<str>, topic: LogTopic, partition: u32) -> Self {
        Self { name, topic, partition, next: 0, acknowledged: 0, logged_gap_end: 0, paused_until: None }
    }

    /// The partition's number among those of all topics.
    pub(crate) fn number(&self) -> u32 {
        self.topic.first + self.partition
    }

    /// Sets the offset at which the group continues.
    pub(crate) fn start_at(&mut self, offset: u64) {
        (self.next, self.acknowledged) = (offset, offset);
    }

    /// Logs that the records with these offsets were missing in a read.
    fn log_gap(&mut self, group: &str, Range { start: read_until, end: offset }: Range<u64>) {
        if offset <= self.logged_gap_end {
            return;
        }
        self.logged_gap_end = offset;
        let (topic, partition) = (&*self.name, self.partition);
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

    fn contains(&self, position: &Position) -> bool {
        self.partition == position.partition && self.name == position.topic
    }
}

/// A member of a consumer group on the embedded log.
pub(crate) struct LogGroupMember {
    store: Embedded,
    joined: JoinedMember,
    owned: Mutex<Vec<MemberPartition>>,
    /// Index of the partition that the next poll reads first, so that a busy partition does not starve the others.
    next_start_index: Mutex<usize>,
}

impl LogGroupMember {
    pub(crate) fn new(store: Embedded, joined: JoinedMember, owned: Vec<MemberPartition>) -> Self {
        Self { store, joined, owned: Mutex::new(owned), next_start_index: Mutex::new(0) }
    }

    /// The partitions with records to deliver, in the order in which the next poll reads them.
    fn ready(&self) -> Vec<MemberPartition> {
        let (owned, now) = (self.owned.lock(), Instant::now());
        let is_ready = |partition: &&MemberPartition| {
            let paused = partition.paused_until.is_some_and(|until| until > now);
            !paused && partition.next < self.store.inner.log_state.end(partition.number())
        };
        let first = *self.next_start_index.lock() % owned.len().max(1);
        let (before, after) = owned.split_at(first);
        after.iter().chain(before).filter(is_ready).cloned().collect()
    }

    /// Time at which the next pause ends.
    fn next_pause_end(&self) -> Option<Instant> {
        let now = Instant::now();
        self.owned.lock().iter().filter_map(|partition| partition.paused_until).filter(|until| *until > now).min()
    }

    /// Reads from the partitions and advances their offsets. A partition that was paused or rewound meanwhile delivers nothing and keeps its
    /// new offset.
    async fn fetch(&self, ready: Vec<MemberPartition>, limit: u32) -> Result<Vec<ConsumerRecord>, Error> {
        let requested = ready.clone();
        let found = self.store.read("poll", move |sql| fetch(sql, &ready, limit)).await?;
        let mut owned = self.owned.lock();
        let mut messages = Vec::new();
        for (before, messages_read) in requested.iter().zip(found) {
            let Some(last) = messages_read.last() else { continue };
            let is_same = |partition: &&mut MemberPartition| partition.number() == before.number();
            let Some(partition) = owned.iter_mut().find(is_same) else { continue };
            if partition.next == before.next && partition.paused_until == before.paused_until {
                if let Some(gap) = gap(before.next, messages_read.iter().map(|message| message.position.offset)) {
                    partition.log_gap(&self.joined.group, gap);
                }
                partition.next = last.position.offset + 1;
                messages.extend(messages_read);
            }
        }
        let mut next_start_index = self.next_start_index.lock();
        *next_start_index = next_start_index.wrapping_add(1);
        Ok(messages)
    }
}

#[async_trait]
impl GroupMember for LogGroupMember {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error> {
        let deadline = Instant::now() + timeout;
        let log_state = self.store.inner.log_state.clone();
        loop {
            let mut arrived = std::pin::pin!(log_state.advanced().notified());
            // Registered before the ends are read, or the notification of a record committed in between would be missed.
            arrived.as_mut().enable();
            let ready = self.ready();
            if !ready.is_empty() {
                let messages = self.fetch(ready, limit.max(1)).await?;
                if !messages.is_empty() {
                    return Ok(messages);
                }
            }
            let until = self.next_pause_end().map_or(deadline, |ends| ends.min(deadline));
            // Cancel-safe: nothing was delivered yet.
            let woken = tokio::time::timeout_at(until, arrived).await.is_ok();
            if !woken && Instant::now() >= deadline {
                // Appends of other processes send no notification here.
                let log_state = log_state.clone();
                self.store.read("log_ends", move |sql| log_state.refresh(sql)).await?;
                let ready = self.ready();
                return if ready.is_empty() { Ok(Vec::new()) } else { self.fetch(ready, limit.max(1)).await };
            }
        }
    }

    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error> {
        let mut ends: Vec<(u32, u64)> = Vec::with_capacity(positions.len());
        {
            let owned = self.owned.lock();
            for position in positions {
                let Some(partition) = owned.iter().find(|partition| partition.contains(position)) else {
                    return Err(Error::Rejected(format!("{position:?} is not in a partition of this member")));
                };
                ends.push((partition.number(), position.offset + 1));
            }
        }
        let (group, offsets) = (self.joined.group.clone(), ends.clone());
        self.store
            .write("acknowledge", move |context| {
                let mut put = context.sql.prepare_cached(
                    "INSERT INTO group_offset (consumer_group, number, next_offset, seen_at) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO UPDATE SET next_offset = max(next_offset, excluded.next_offset),
                       seen_at = max(seen_at, excluded.seen_at)",
                )?;
                for (number, end) in &offsets {
                    put.execute(params![&*group, number, *end as i64, context.now.millis()])?;
                }
                Ok(())
            })
            .await?;
        let mut owned = self.owned.lock();
        for (number, end) in ends {
            for partition in owned.iter_mut().filter(|partition| partition.number() == number) {
                partition.acknowledged = partition.acknowledged.max(end);
                partition.next = partition.next.max(partition.acknowledged);
            }
        }
        Ok(AckOutcome::Complete)
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.owned.lock().iter_mut().for_each(|partition| partition.next = partition.acknowledged);
        Ok(())
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let mut owned = self.owned.lock();
        let Some(partition) = owned.iter_mut().find(|partition| partition.contains(from)) else {
            return Err(Error::Rejected(format!("{from:?} is not in a partition of this member")));
        };
        partition.next = from.offset.max(partition.acknowledged);
        partition.paused_until = Some(Instant::now() + resume_after);
        Ok(())
    }

    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        let (owned, now) = (self.owned.lock().clone(), self.store.inner.clock.now());
        self.store
            .read("lag", move |sql| {
                let mut next = sql.prepare_cached("SELECT next_offset FROM topic_partition WHERE number = ?1")?;
                let mut oldest = sql.prepare_cached(
                    "SELECT appended_at FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT 1",
                )?;
                let lag = |partition: &MemberPartition| {
                    let end = next.query_row([partition.number()], |row| row.get::<_, i64>(0))? as u64;
                    let bounds =
                        params![log_id(partition.number(), partition.acknowledged), log_id(partition.number() + 1, 0)];
                    let appended_at: Option<i64> = oldest.query_row(bounds, |row| row.get(0)).optional()?;
                    let age =
                        appended_at.map(|millis| now.since(domain::Timestamp::from_millis(millis))).unwrap_or_default();
                    let messages = end.saturating_sub(partition.acknowledged);
                    Ok(Lag { topic: partition.name.to_string(), partition: partition.partition, messages, age })
                };
                owned.iter().map(lag).collect()
            })
            .await
    }
}

/// The first missing offsets of a read from `next` on. The log numbers its records without gaps, and removes them from its start. A group that
/// begins has read nothing, so it misses nothing that was removed before.
fn gap(next: u64, offsets: impl Iterator<Item = u64>) -> Option<Range<u64>> {
    let mut expected = (next > 0).then_some(next);
    for offset in offsets {
        if let Some(expected) = expected.filter(|expected| *expected < offset) {
            return Some(expected..offset);
        }
        expected = Some(offset + 1);
    }
    None
}

/// Reads from the partitions in their order until the limit of records, or that of bytes, is reached.
fn fetch(sql: &Connection, owned: &[MemberPartition], limit: u32) -> CommandResult<Vec<Vec<ConsumerRecord>>> {
    let mut left = log::read_limits(limit);
    let records = |partition: &MemberPartition| {
        if left.records == 0 || left.bytes == 0 {
            return Ok(Vec::new());
        }
        let next = (partition.partition, partition.next);
        let messages = log::read_within(sql, &partition.name, partition.topic, next, left)?;
        left = log::remaining_limits(left, &messages);
        Ok(messages)
    };
    owned.iter().map(records).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_begins_at_the_first_record_that_the_group_cannot_read() {
        for (next, offsets, expected) in [
            (0, &[0, 1, 2][..], None),
            (0, &[7, 8], None),
            (5, &[5, 6], None),
            (5, &[7, 8], Some(5..7)),
            (5, &[5, 6, 9, 12], Some(7..9)),
            (5, &[], None),
        ] {
            assert_eq!(gap(next, offsets.iter().copied()), expected, "from {next}: {offsets:?}");
        }
    }
}
