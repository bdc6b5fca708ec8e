//! `TopicLog`: reads all partitions of a topic for readers outside the service, and waits for new records.
use std::sync::Arc;

use ::outbox::OffsetCommitMode;
use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topic_log::{NextOffset, NextRecords, OffsetCommitOutcome, ReadLimits, TopicAdmission, TopicLog};
use ports::broker::topics::TopicView;
use rusqlite::{Connection, OptionalExtension, params};

use crate::broker::log_state::{LogTopic, log_id, offset_in};
use crate::broker::{log, topic_reader};
use crate::consumer::group_offsets;
use crate::error::CommandResult;
use crate::store::Embedded;

#[async_trait]
impl TopicLog for Embedded {
    async fn view(&self, topic: &str) -> Result<Option<TopicView>, Error> {
        let name = topic.to_owned();
        self.read("topic_view", move |sql| topic_reader::view(sql, &name)).await
    }

    async fn admit_topics(&self, names: &[&str]) -> Result<TopicAdmission, Error> {
        self.admit(names).await
    }

    fn release_topics(&self, names: &[&str]) {
        self.inner.topic_admissions.release(names);
    }

    async fn topic_names(&self) -> Result<Vec<String>, Error> {
        self.read("topic_names", log::topic_names).await
    }

    async fn read_next(&self, topic: &str, from: &[NextOffset], limits: ReadLimits) -> Result<NextRecords, Error> {
        let (name, from): (Arc<str>, Vec<NextOffset>) = (topic.into(), from.to_vec());
        self.read("topic_read_next", move |sql| read_next(sql, &name, &from, limits)).await
    }

    async fn wait_for_records(&self, topic: &str, from: &[NextOffset]) -> Result<(), Error> {
        let name = topic.to_owned();
        let topic = self.read("topic_find", move |sql| log::topic_in(sql, &name)).await?;
        let log_state = &self.inner.log_state;
        loop {
            let mut arrived = std::pin::pin!(log_state.advanced().notified());
            // Registered before the ends are read, or the notification of a record committed in between would be missed.
            arrived.as_mut().enable();
            if from.iter().any(|(partition, next)| log_state.end(topic.first + partition) > *next) {
                return Ok(());
            }
            arrived.await;
        }
    }

    async fn committed(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error> {
        let (group, name) = (group.to_owned(), topic.to_owned());
        self.read("group_offsets", move |sql| group_offsets::find(sql, &group, log::topic_in(sql, &name)?)).await
    }

    async fn register(&self, group: &str, topic: &str) -> Result<OffsetCommitOutcome, Error> {
        let (name, reader) = (topic.to_owned(), group.to_owned());
        let now = self.inner.clock.now();
        let was_seen_recently =
            move |sql: &Connection| group_offsets::was_seen_recently(sql, &reader, log::topic_in(sql, &name)?, now);
        if self.read("group_seen", was_seen_recently).await? {
            self.inner.joined_groups.record_seen(group);
            return Ok(OffsetCommitOutcome::Committed);
        }
        self.commit(group, topic, &[], OffsetCommitMode::Forward).await
    }

    async fn commit(
        &self,
        group: &str,
        topic: &str,
        offsets: &[NextOffset],
        mode: OffsetCommitMode,
    ) -> Result<OffsetCommitOutcome, Error> {
        let (reader, name, offsets) = (group.to_owned(), topic.to_owned(), offsets.to_vec());
        let oldest = self.millis_ago(self.inner.options.log_retention);
        let joined = self.inner.joined_groups.clone();
        let commit = self.write("group_commit", move |context| {
            let topic = log::topic_in(context.sql, &name)?;
            group_offsets::commit(context, &reader, topic, &offsets, mode, oldest, &joined)
        });
        let outcome = commit.await?;
        if outcome == OffsetCommitOutcome::Committed {
            self.inner.joined_groups.record_seen(group);
        }
        Ok(outcome)
    }
}

/// A partition that has records to read.
struct ReadyPartition {
    partition: u32,
    next: u64,
    appended_at: i64,
}

fn read_next(sql: &Connection, name: &Arc<str>, from: &[NextOffset], limits: ReadLimits) -> CommandResult<NextRecords> {
    let topic = log::topic_in(sql, name)?;
    let Some(mut ready) = ready_partitions(sql, topic, from)? else { return Ok(NextRecords::Removed) };
    let (mut found, mut left): (Vec<ConsumerRecord>, ReadLimits) = (Vec::new(), limits);
    // Each round divides the remaining limits among the partitions that still have records.
    while !ready.is_empty() && left.records > 0 && left.bytes > 0 {
        let share = left.records.div_ceil(ready.len() as u32);
        let mut unfinished = Vec::new();
        for mut partition in ready {
            let share = ReadLimits { records: share.min(left.records), bytes: left.bytes };
            if share.records == 0 || share.bytes == 0 {
                break;
            }
            let part = log::read_within(sql, name, topic, (partition.partition, partition.next), share)?;
            left = log::remaining_limits(left, &part);
            if part.len() == share.records as usize {
                partition.next += part.len() as u64;
                unfinished.push(partition);
            }
            found.extend(part);
        }
        ready = unfinished;
    }
    Ok(NextRecords::Found(found))
}

/// The partitions with records at their offset, the one whose record waits longest first; `None` when such a record was deleted.
fn ready_partitions(
    sql: &Connection,
    topic: LogTopic,
    from: &[NextOffset],
) -> CommandResult<Option<Vec<ReadyPartition>>> {
    let mut ends = sql.prepare_cached("SELECT next_offset FROM topic_partition WHERE number = ?1")?;
    let mut head = sql
        .prepare_cached("SELECT place, appended_at FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT 1")?;
    let mut ready = Vec::new();
    for (partition, next) in from.iter().copied().filter(|(partition, _)| *partition < topic.partitions) {
        let number = topic.first + partition;
        let end: i64 = ends.query_row([number], |row| row.get(0))?;
        if end as u64 <= next {
            continue;
        }
        let bounds = params![log_id(number, next), log_id(number + 1, 0)];
        let first: Option<(i64, i64)> = head.query_row(bounds, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        match first {
            Some((id, appended_at)) if offset_in(id) == next => {
                ready.push(ReadyPartition { partition, next, appended_at });
            }
            _ => return Ok(None),
        }
    }
    ready.sort_by_key(|partition| partition.appended_at);
    Ok(Some(ready))
}
