//! The reference's consumer groups.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Position;
use ports::source::{ConsumerGroups, Delivery, GroupMember, Lag};

use crate::reference::Reference;
use crate::reference_broker::delivery;

struct Member {
    backend: Reference,
    group: String,
    /// The topic partitions it has.
    has: Vec<(String, u32)>,
    hand: Mutex<Hand>,
}

#[derive(Default)]
struct Hand {
    /// What comes next, where it is not simply what comes after the last acknowledgement.
    next: BTreeMap<(String, u32), u64>,
    paused: BTreeMap<(String, u32), Timestamp>,
}

impl Member {
    fn acknowledged(&self, at: &(String, u32)) -> u64 {
        let state = self.backend.state.lock();
        state.groups.get(&self.group).and_then(|group| group.get(at)).copied().unwrap_or(0)
    }

    fn take(&self, limit: u32) -> Vec<Delivery> {
        let now = self.backend.now();
        let mut hand = self.hand.lock();
        let mut taken = Vec::new();
        for at in &self.has {
            if hand.paused.get(at).is_some_and(|until| *until > now) {
                continue;
            }
            let next = hand.next.get(at).copied().unwrap_or_else(|| self.acknowledged(at));
            let mut state = self.backend.state.lock();
            let log = &state.topic(&at.0)[at.1 as usize];
            let room = limit as usize - taken.len();
            let fresh = (0..).zip(log).filter(|(offset, _)| *offset >= next).take(room);
            let fresh: Vec<Delivery> = fresh.map(|(offset, record)| delivery(record, at.1, offset)).collect();
            hand.next.insert(at.clone(), next + fresh.len() as u64);
            taken.extend(fresh);
        }
        taken
    }
}

#[async_trait]
impl GroupMember for Member {
    async fn poll(&self, limit: u32, patience: Duration) -> Result<Vec<Delivery>, Error> {
        let taken = self.take(limit);
        if !taken.is_empty() || patience.is_zero() {
            return Ok(taken);
        }
        tokio::time::sleep(patience).await;
        Ok(self.take(limit))
    }

    async fn acknowledge(&self, upto: &[Position]) -> Result<(), Error> {
        let mut state = self.backend.state.lock();
        let group = state.groups.entry(self.group.clone()).or_default();
        for position in upto {
            let next = group.entry((position.topic.to_string(), position.partition)).or_default();
            *next = (*next).max(position.offset + 1);
        }
        Ok(())
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.hand.lock().next.clear();
        Ok(())
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let at = (from.topic.to_string(), from.partition);
        let mut hand = self.hand.lock();
        hand.next.insert(at.clone(), from.offset);
        hand.paused.insert(at, self.backend.now().after(resume_after));
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
        Ok(self.has.iter().map(lag).collect())
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
        let mut has = Vec::new();
        for topic in topics {
            let partitions = u32::try_from(state.topic(topic).len()).expect("topics have few partitions");
            let mine = (0..partitions).filter(|partition| partition % members == member);
            has.extend(mine.map(|partition| (topic.clone(), partition)));
        }
        Ok(Arc::new(Member { backend: self.clone(), group: group.to_owned(), has, hand: Mutex::default() }))
    }
}
