//! Member: a member of a consumer group. Two tasks of its process keep its session and fetch messages; a freeze stops both, and a kill ends them
//! without leaving the group.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kit::clock::TokioClock;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerRecord, GroupMember, Lag};
use ports::clock::Clock;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::flaw::Flaw;
use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::kafka::groups::coordinator::TopicPartition;
use crate::cluster::kafka::groups::session::{MemberShared, Membership};
use crate::cluster::network::Link;

/// Longest time that a fetch waits at the brokers for new messages.
const FETCH_WAIT: Duration = Duration::from_millis(1_000);
/// Time until a fetch that failed is repeated.
const FETCH_PAUSE: Duration = Duration::from_millis(50);

/// The handle of a member. Dropping it leaves the group.
pub struct Member(Arc<MemberShared>);

impl Member {
    /// Starts a member of a group for these topics.
    pub fn start(
        kafka: SimulatedKafka,
        link: Link,
        clock: Arc<TokioClock>,
        group: &str,
        topics: Vec<Arc<str>>,
    ) -> Self {
        let shared = Arc::new(MemberShared::new(kafka, link, clock, group, topics));
        drop(tokio::task::spawn_local(Arc::clone(&shared).keep_session()));
        drop(tokio::task::spawn_local(fetch(Arc::clone(&shared))));
        Self(shared)
    }
}

/// Fetches messages until the handle is dropped.
async fn fetch(shared: Arc<MemberShared>) {
    while !shared.membership().is_closed {
        let from = shared.membership().fetch_positions();
        if from.is_empty() {
            shared.fetchable.notified().await;
            continue;
        }
        let (kafka, request) = (shared.kafka.clone(), from.clone());
        let fetched = shared.link.call("fetch", async move { kafka.fetch(&request, FETCH_WAIT).await });
        // Cancellation: a fetch takes nothing from the brokers. One that waits without all partitions is replaced.
        tokio::select! {
            biased;
            fetched = fetched => match fetched {
                Ok(fetched) => shared.add(&from, fetched),
                Err(_) => sleep(FETCH_PAUSE).await,
            },
            () = shared.fetchable.notified() => {}
        }
    }
}

fn partition_of(position: &Position) -> TopicPartition {
    (Arc::clone(&position.topic), position.partition)
}

#[async_trait]
impl GroupMember for Member {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            let now = Instant::now();
            let (messages, resumes) = self.0.take(limit.max(1) as usize, now);
            if !messages.is_empty() {
                if self.0.kafka.flaw() == Some(Flaw::OffsetCommittedAtDelivery) {
                    let all: Vec<Position> = messages.iter().map(|message| message.position.clone()).collect();
                    self.acknowledge(&all).await?;
                }
                return Ok(messages);
            }
            if now >= deadline {
                return Ok(messages);
            }
            let until = resumes.map_or(deadline, |resumes| resumes.min(deadline));
            // Cancellation: messages are taken only above, and the timer has no effect when it is dropped.
            tokio::select! {
                () = self.0.arrived.notified() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error> {
        let (mut offsets, mut outcome) = (BTreeMap::<TopicPartition, u64>::new(), AckOutcome::Complete);
        let (member, generation) = {
            let membership: &Membership = &self.0.membership();
            for position in positions {
                let partition = partition_of(position);
                match membership.buffers.get(&partition) {
                    Some(buffer) if position.offset < buffer.acknowledged => {}
                    Some(buffer) if buffer.has_delivered(position.offset) => {
                        let next = offsets.entry(partition).or_default();
                        *next = (*next).max(position.offset + 1);
                    }
                    Some(_) | None => outcome = AckOutcome::PartitionsLost,
                }
            }
            (membership.number, membership.generation)
        };
        if let (Some(member), false) = (member, offsets.is_empty()) {
            let (kafka, group, request) = (self.0.kafka.clone(), self.0.group.clone(), offsets.clone());
            let commit = async move { kafka.coordinator().commit(&group, member, generation, &request) };
            let result = self.0.link.call("commit_offsets", commit).await?;
            result.map_err(|_| Error::Rejected("the coordinator refused a commit of a former generation".into()))?;
            self.0.acknowledged(offsets);
        }
        Ok(outcome)
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.0.membership().buffers.values_mut().for_each(|buffer| buffer.rewind_to(0));
        Ok(())
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let mut membership = self.0.membership();
        if let Some(buffer) = membership.buffers.get_mut(&partition_of(from)) {
            buffer.rewind_to(from.offset);
            buffer.paused_until = Some(Instant::now() + resume_after);
        }
        Ok(())
    }

    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        let now = self.0.clock.now();
        let membership = self.0.membership();
        let lag = membership.buffers.iter().map(|(partition, buffer)| Lag {
            topic: partition.0.to_string(),
            partition: partition.1,
            messages: buffer.len() as u64 + self.0.kafka.visible_from(partition, buffer.fetched),
            age: buffer.oldest().map(|message| now.since(message.record.timestamp)).unwrap_or_default(),
        });
        Ok(lag.collect())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.close();
    }
}
