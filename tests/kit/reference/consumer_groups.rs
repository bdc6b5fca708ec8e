//! The consumer groups of the reference: acknowledged offsets per group, read offsets per member.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, ConsumerRecord, GroupMember, Lag};

use crate::reference::broker::consumer_record;
use crate::reference::state::Reference;

struct Consumer {
    backend: Reference,
    group: String,
    /// The topic partitions assigned to this member.
    assigned: Vec<(String, u32)>,
    cursor: Mutex<Cursor>,
}

#[derive(Default)]
struct Cursor {
    /// The next offset to deliver, where it differs from the one after the last acknowledgement.
    next: BTreeMap<(String, u32), u64>,
    paused: BTreeMap<(String, u32), Timestamp>,
}

impl Consumer {
    fn acknowledged(&self, at: &(String, u32)) -> u64 {
        let state = self.backend.state.lock();
        state.groups.get(&self.group).and_then(|group| group.get(at)).copied().unwrap_or(0)
    }

    fn deliver(&self, limit: u32) -> Vec<ConsumerRecord> {
        let now = self.backend.now();
        let mut cursor = self.cursor.lock();
        let mut messages = Vec::new();
        for at in &self.assigned {
            if cursor.paused.get(at).is_some_and(|until| *until > now) {
                continue;
            }
            let next = cursor.next.get(at).copied().unwrap_or_else(|| self.acknowledged(at));
            let mut state = self.backend.state.lock();
            let log = &state.topic(&at.0)[at.1 as usize];
            let remaining = limit as usize - messages.len();
            let new = (0..).zip(log).filter(|(offset, _)| *offset >= next).take(remaining);
            let new: Vec<ConsumerRecord> = new.map(|(offset, record)| consumer_record(record, at.1, offset)).collect();
            cursor.next.insert(at.clone(), next + new.len() as u64);
            messages.extend(new);
        }
        messages
    }
}

#[async_trait]
impl GroupMember for Consumer {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error> {
        let messages = self.deliver(limit);
        if !messages.is_empty() || timeout.is_zero() {
            return Ok(messages);
        }
        tokio::time::sleep(timeout).await;
        Ok(self.deliver(limit))
    }

    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error> {
        let mut state = self.backend.state.lock();
        let group = state.groups.entry(self.group.clone()).or_default();
        for position in positions {
            let next = group.entry((position.topic.to_string(), position.partition)).or_default();
            *next = (*next).max(position.offset + 1);
        }
        Ok(AckOutcome::Complete)
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.cursor.lock().next.clear();
        Ok(())
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let at = (from.topic.to_string(), from.partition);
        let mut cursor = self.cursor.lock();
        cursor.next.insert(at.clone(), from.offset);
        cursor.paused.insert(at, self.backend.now().plus(resume_after));
        Ok(())
    }

    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        let now = self.backend.now();
        let lag = |at: &(String, u32)| {
            let acknowledged = self.acknowledged(at);
            let mut state = self.backend.state.lock();
            let log = &state.topic(&at.0)[at.1 as usize];
            let oldest = usize::try_from(acknowledged).ok().and_then(|next| log.get(next));
            Lag {
                topic: at.0.clone(),
                partition: at.1,
                messages: log.len() as u64 - acknowledged,
                age: oldest.map_or(Duration::ZERO, |record| now.since(record.timestamp)),
            }
        };
        Ok(self.assigned.iter().map(lag).collect())
    }
}

#[async_trait]
impl ConsumerGroups for Reference {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        member: u32,
        members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        let mut state = self.state.lock();
        let mut assigned = Vec::new();
        for topic in topics {
            let partitions = u32::try_from(state.topic(topic).len()).expect("topics have few partitions");
            let own = (0..partitions).filter(|partition| partition % members == member);
            assigned.extend(own.map(|partition| (topic.clone(), partition)));
        }
        Ok(Arc::new(Consumer { backend: self.clone(), group: group.to_owned(), assigned, cursor: Mutex::default() }))
    }

    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        let mut state = self.state.lock();
        for topic in topics {
            let ends: Vec<u64> = state.topic(topic).iter().map(|log| log.len() as u64).collect();
            let offsets = state.groups.entry(group.to_owned()).or_default();
            for (partition, end) in (0..).zip(ends) {
                offsets.entry((topic.clone(), partition)).or_insert(end);
            }
        }
        Ok(())
    }
}
