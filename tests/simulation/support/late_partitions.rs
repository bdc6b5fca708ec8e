//! LatePartitions: consumer groups that assign partitions to a new member some polls after its join, as Kafka's do, or refuse new members.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, ConsumerRecord, GroupMember, Lag};

/// Forwards every call, except the first polls of each member, and its lag until then.
pub struct LatePartitions {
    /// The groups without the delay.
    pub inner: Arc<dyn ConsumerGroups>,
    /// Polls of a new member before it has partitions.
    pub empty_polls: u32,
    /// Whether every join fails, as where the group's coordinator cannot be reached.
    pub refuses_members: Arc<AtomicBool>,
    /// Whether other members get the partitions of one that fails, as in Kafka's groups.
    pub reassigns_partitions: bool,
}

struct LateMember {
    inner: Arc<dyn GroupMember>,
    empty_polls: AtomicU32,
}

#[async_trait]
impl ConsumerGroups for LatePartitions {
    async fn join(&self, group: &str, topics: &[String], number: u32, of: u32) -> Result<Arc<dyn GroupMember>, Error> {
        if self.refuses_members.load(Relaxed) {
            return Err(Error::Unreachable("the group accepts no member".into()));
        }
        let inner = self.inner.join(group, topics, number, of).await?;
        Ok(Arc::new(LateMember { inner, empty_polls: AtomicU32::new(self.empty_polls) }))
    }

    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.begin_at_end(group, topics).await
    }

    async fn keep_offsets(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.keep_offsets(group, topics).await
    }

    fn reassigns_partitions(&self) -> bool {
        self.reassigns_partitions
    }
}

#[async_trait]
impl GroupMember for LateMember {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error> {
        let left = self.empty_polls.load(Relaxed);
        if left == 0 {
            return self.inner.poll(limit, timeout).await;
        }
        tokio::time::sleep(timeout).await;
        self.empty_polls.store(left - 1, Relaxed);
        Ok(Vec::new())
    }

    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error> {
        self.inner.acknowledge(positions).await
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.inner.rewind().await
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        self.inner.pause(from, resume_after).await
    }

    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        if self.empty_polls.load(Relaxed) == 0 { self.inner.lag().await } else { Ok(Vec::new()) }
    }
}
