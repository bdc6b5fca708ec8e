//! `ConsumerGroups` and `GroupMember`: the async side of a group member. Kafka's group assigns the partitions, so the member's number and
//! the number of members have no effect here.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, ConsumerRecord, GroupMember, Lag};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::adapter::Kafka;
use crate::connection::blocking_call::{client_stopped, run_blocking};
use crate::connection::client_config;
use crate::consumer::context::MemberContext;
use crate::consumer::member_request::MemberRequest;
use crate::consumer::member_thread::MemberThread;
use crate::consumer::offset_commits::{AssignedPartition, OffsetCommits};
use crate::error::map_err;
use crate::topics::group_offsets::{commit_end_offsets, renew_retention};

/// A handle to a member's thread. Dropping it leaves the group.
struct KafkaMember {
    requests: Sender<MemberRequest>,
    /// Paused partitions and when each resumes. Kept here, because only callers run in the runtime whose clock measures pauses.
    pauses: Mutex<HashMap<AssignedPartition, Instant>>,
}

#[async_trait]
impl ConsumerGroups for Kafka {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        _member: u32,
        _members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        // A member of a group with a missing topic would fail after it has joined, and each new one would make the others rebalance.
        self.inner.watcher.topics_ready(topics).await?;
        let action = format!("joining group {group}");
        let config = client_config::group_member(&self.inner.options, group);
        let context = MemberContext::new(Arc::clone(&self.inner.contact));
        let consumer = BaseConsumer::from_config_and_context(&config, context);
        let mut consumer: BaseConsumer<MemberContext> = consumer.map_err(|error| map_err(&error, &action))?;
        let (requests, received) = channel();
        let wake = requests.clone();
        // The send fails only after the member's thread has ended, which then needs no wake-up.
        consumer.set_nonempty_callback(move || drop(wake.send(MemberRequest::Wake)));
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&names).map_err(|error| map_err(&error, &action))?;
        let consumer = Arc::new(consumer);
        let no_thread = |error| Error::Overloaded(format!("cannot start a thread for a member of {group}: {error}"));
        let results = requests.clone();
        // The send fails only after the member's thread has ended, which has then failed all its acknowledgements.
        let on_commit = move |number, result| drop(results.send(MemberRequest::CommitResult(number, result)));
        let commits = OffsetCommits::start(Arc::clone(&consumer), on_commit).map_err(no_thread)?;
        let thread = MemberThread::new(consumer, commits, Arc::clone(&self.inner.options), (group, topics));
        std::thread::Builder::new()
            .name("kafka-member".into())
            .spawn(move || thread.run(&received))
            .map_err(no_thread)?;
        Ok(Arc::new(KafkaMember { requests, pauses: Mutex::default() }))
    }

    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.watcher.ready().await?;
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        self.ensure_topics(&names).await?;
        let (options, contact) = (Arc::clone(&self.inner.options), Arc::clone(&self.inner.contact));
        let (group, topics) = (group.to_owned(), topics.to_vec());
        run_blocking("kafka-group-begin", move || commit_end_offsets(&options, &contact, &group, &topics)).await
    }

    async fn keep_offsets(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.watcher.ready().await?;
        let (options, group, topics) = (Arc::clone(&self.inner.options), group.to_owned(), topics.to_vec());
        run_blocking("kafka-group-keep", move || renew_retention(&options, &group, &topics)).await
    }
}

impl KafkaMember {
    async fn request<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> MemberRequest,
    ) -> Result<T, Error> {
        let (reply, result) = oneshot::channel();
        self.requests.send(request(reply)).map_err(|_| client_stopped())?;
        result.await.unwrap_or_else(|_| Err(client_stopped()))
    }

    /// The partitions that are paused now, and when the first of them resumes.
    fn paused(&self) -> (Vec<AssignedPartition>, Option<Instant>) {
        let now = Instant::now();
        let mut pauses = self.pauses.lock();
        pauses.retain(|_, until| *until > now);
        (pauses.keys().cloned().collect(), pauses.values().min().copied())
    }
}

#[async_trait]
impl GroupMember for KafkaMember {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            let (paused, resumes) = self.paused();
            let until = resumes.map_or(deadline, |resumes| resumes.min(deadline));
            let wait = until.saturating_duration_since(Instant::now());
            let limit = limit.max(1) as usize;
            let paused = paused.into_iter().collect();
            let messages = self.request(|reply| MemberRequest::Poll { limit, wait, paused, reply }).await?;
            if !messages.is_empty() || Instant::now() >= deadline {
                return Ok(messages);
            }
        }
    }

    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error> {
        if positions.is_empty() {
            return Ok(AckOutcome::Complete);
        }
        let positions = positions.to_vec();
        self.request(|reply| MemberRequest::Acknowledge { positions, reply }).await
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.request(|reply| MemberRequest::Rewind { reply }).await
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let until = Instant::now() + resume_after;
        let partition = (Arc::clone(&from.topic), from.partition);
        let from = from.clone();
        let is_assigned = self.request(|reply| MemberRequest::RewindTo { from, reply }).await?;
        if is_assigned {
            self.pauses.lock().insert(partition, until);
        }
        Ok(())
    }

    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        self.request(|reply| MemberRequest::Lag { reply }).await
    }
}

impl Drop for KafkaMember {
    fn drop(&mut self) {
        // The send fails only when the thread has ended and left the group already.
        drop(self.requests.send(MemberRequest::Leave));
    }
}
