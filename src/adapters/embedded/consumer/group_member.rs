//! One member of a consumer group: what it may read, how far it has got, and what it waits for.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{Delivery, GroupMember, Lag};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::time::Instant;

use crate::broker::log;
use crate::broker::log_ends::{LogTopic, place};
use crate::error::CommandResult;
use crate::store::Embedded;

/// A topic partition of this member.
#[derive(Clone, Debug)]
pub(crate) struct MemberPartition {
    name: Arc<str>,
    topic: LogTopic,
    partition: u32,
    /// The next offset to hand out.
    next: u64,
    /// The next offset the group has not acknowledged.
    acknowledged: u64,
    paused_until: Option<Instant>,
}

impl MemberPartition {
    pub(crate) fn new(name: Arc<str>, topic: LogTopic, partition: u32) -> Self {
        Self { name, topic, partition, next: 0, acknowledged: 0, paused_until: None }
    }

    /// Its number among all topic partitions.
    pub(crate) fn number(&self) -> u32 {
        self.topic.first + self.partition
    }

    /// Where the group stands.
    pub(crate) fn begin(&mut self, offset: u64) {
        (self.next, self.acknowledged) = (offset, offset);
    }

    fn stands_at(&self, position: &Position) -> bool {
        self.partition == position.partition && self.name == position.topic
    }
}

/// A member of a group.
pub(crate) struct LogGroupMember {
    store: Embedded,
    group: Arc<str>,
    partitions_owned: Mutex<Vec<MemberPartition>>,
    /// Where the next poll begins to look, so that a busy partition does not starve the others.
    turn: Mutex<usize>,
}

impl LogGroupMember {
    pub(crate) fn new(store: Embedded, group: Arc<str>, partitions_owned: Vec<MemberPartition>) -> Self {
        Self { store, group, partitions_owned: Mutex::new(partitions_owned), turn: Mutex::new(0) }
    }

    /// Shares with something to hand out, beginning with the one whose turn it is.
    fn ready(&self) -> Vec<MemberPartition> {
        let (partitions_owned, now) = (self.partitions_owned.lock(), Instant::now());
        let ready = |share: &&MemberPartition| {
            let paused = share.paused_until.is_some_and(|until| until > now);
            !paused && share.next < self.store.inner.log_ends.end(share.number())
        };
        let turn = *self.turn.lock() % partitions_owned.len().max(1);
        let (before, after) = partitions_owned.split_at(turn);
        after.iter().chain(before).filter(ready).cloned().collect()
    }

    /// When the next pause ends.
    fn pause_ends(&self) -> Option<Instant> {
        let now = Instant::now();
        self.partitions_owned.lock().iter().filter_map(|share| share.paused_until).filter(|until| *until > now).min()
    }

    /// Reads from the shares and moves on. What a concurrent pause or rewind changed meanwhile stays as that left it.
    async fn fetch(&self, ready: Vec<MemberPartition>, limit: u32) -> Result<Vec<Delivery>, Error> {
        let asked = ready.clone();
        let found = self.store.read("poll", move |sql| fetch(sql, &ready, limit)).await?;
        let mut partitions_owned = self.partitions_owned.lock();
        let mut deliveries = Vec::new();
        for (before, got) in asked.iter().zip(found) {
            let Some(last) = got.last() else { continue };
            let moved = |share: &&mut MemberPartition| share.number() == before.number();
            let Some(share) = partitions_owned.iter_mut().find(moved) else { continue };
            if share.next == before.next && share.paused_until == before.paused_until {
                share.next = last.position.offset + 1;
                deliveries.extend(got);
            }
        }
        let mut turn = self.turn.lock();
        *turn = turn.wrapping_add(1);
        Ok(deliveries)
    }
}

#[async_trait]
impl GroupMember for LogGroupMember {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        let deadline = Instant::now() + timeout;
        let log_ends = self.store.inner.log_ends.clone();
        loop {
            let mut arrived = std::pin::pin!(log_ends.arrived().notified());
            // Listening begins before the look, or a record committed in between would be slept through.
            arrived.as_mut().enable();
            let ready = self.ready();
            if !ready.is_empty() {
                let deliveries = self.fetch(ready, limit.max(1)).await?;
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
            }
            let until = self.pause_ends().map_or(deadline, |ends| ends.min(deadline));
            // Both sides may be dropped: nothing was handed out yet.
            let woken = tokio::time::timeout_at(until, arrived).await.is_ok();
            if !woken && Instant::now() >= deadline {
                // Another process may have appended beside us; it cannot wake us.
                let log_ends = log_ends.clone();
                self.store.read("log_ends", move |sql| log_ends.refresh(sql)).await?;
                let ready = self.ready();
                return if ready.is_empty() { Ok(Vec::new()) } else { self.fetch(ready, limit.max(1)).await };
            }
        }
    }

    async fn acknowledge(&self, positions: &[Position]) -> Result<(), Error> {
        let mut ends: Vec<(u32, u64)> = Vec::with_capacity(positions.len());
        {
            let partitions_owned = self.partitions_owned.lock();
            for position in positions {
                let Some(share) = partitions_owned.iter().find(|share| share.stands_at(position)) else {
                    return Err(Error::Rejected(format!("{position:?} is not of this member")));
                };
                ends.push((share.number(), position.offset + 1));
            }
        }
        let (group, offsets) = (self.group.clone(), ends.clone());
        self.store
            .write("acknowledge", move |context| {
                let mut put = context.sql.prepare_cached(
                    "UPDATE group_offset SET next_offset = max(next_offset, ?3), seen_at = max(seen_at, ?4)
                     WHERE consumer_group = ?1 AND number = ?2",
                )?;
                for (number, end) in &offsets {
                    put.execute(params![&*group, number, *end as i64, context.now.millis()])?;
                }
                Ok(())
            })
            .await?;
        let mut partitions_owned = self.partitions_owned.lock();
        for (number, end) in ends {
            for share in partitions_owned.iter_mut().filter(|share| share.number() == number) {
                share.acknowledged = share.acknowledged.max(end);
                share.next = share.next.max(share.acknowledged);
            }
        }
        Ok(())
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.partitions_owned.lock().iter_mut().for_each(|share| share.next = share.acknowledged);
        Ok(())
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let mut partitions_owned = self.partitions_owned.lock();
        let Some(share) = partitions_owned.iter_mut().find(|share| share.stands_at(from)) else {
            return Err(Error::Rejected(format!("{from:?} is not of this member")));
        };
        share.next = from.offset.max(share.acknowledged);
        share.paused_until = Some(Instant::now() + resume_after);
        Ok(())
    }

    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        let (partitions_owned, now) = (self.partitions_owned.lock().clone(), self.store.inner.clock.now());
        self.store
            .read("lag", move |sql| {
                let mut next = sql.prepare_cached("SELECT next_offset FROM topic_partition WHERE number = ?1")?;
                let mut oldest = sql.prepare_cached(
                    "SELECT appended_at FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT 1",
                )?;
                let lag = |share: &MemberPartition| {
                    let end = next.query_row([share.number()], |row| row.get::<_, i64>(0))? as u64;
                    let places = params![place(share.number(), share.acknowledged), place(share.number() + 1, 0)];
                    let appended: Option<i64> = oldest.query_row(places, |row| row.get(0)).optional()?;
                    let age = appended.map(|at| now.since(domain::Timestamp::from_millis(at))).unwrap_or_default();
                    let messages = end.saturating_sub(share.acknowledged);
                    Ok(Lag { topic: share.name.to_string(), partition: share.partition, messages, age })
                };
                partitions_owned.iter().map(lag).collect()
            })
            .await
    }
}

/// Reads from each share in turn until the limit is reached.
fn fetch(sql: &Connection, partitions_owned: &[MemberPartition], limit: u32) -> CommandResult<Vec<Vec<Delivery>>> {
    let mut left = limit;
    let one = |share: &MemberPartition| {
        if left == 0 {
            return Ok(Vec::new());
        }
        let got = log::read(sql, &share.name, share.topic, share.partition, share.next, left)?;
        left -= got.len() as u32;
        Ok(got)
    };
    partitions_owned.iter().map(one).collect()
}
