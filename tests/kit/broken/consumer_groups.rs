//! Consumer groups with a flaw.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, ConsumerRecord, GroupMember, Lag};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenConsumerGroups {
    pub(crate) inner: Arc<dyn ConsumerGroups>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl ConsumerGroups for BrokenConsumerGroups {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        member: u32,
        members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        let inner = self.inner.join(group, topics, member, members).await?;
        Ok(Arc::new(BrokenMember { inner, flaw: self.flaw }))
    }
    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        if self.flaw == Flaw::BeginsAtStart { Ok(()) } else { self.inner.begin_at_end(group, topics).await }
    }
    async fn keep_offsets(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.keep_offsets(group, topics).await
    }
    fn reassigns_partitions(&self) -> bool {
        self.inner.reassigns_partitions()
    }
}

struct BrokenMember {
    inner: Arc<dyn GroupMember>,
    flaw: Flaw,
}

#[async_trait]
impl GroupMember for BrokenMember {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error> {
        let limit = if self.flaw == Flaw::PollIgnoresLimit { 1_000 } else { limit };
        let messages = self.inner.poll(limit, timeout).await?;
        if self.flaw == Flaw::AcknowledgesOnPoll {
            let positions: Vec<Position> = messages.iter().map(|message| message.position.clone()).collect();
            self.inner.acknowledge(&positions).await?;
        }
        Ok(messages)
    }
    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error> {
        self.inner.acknowledge(positions).await
    }
    async fn rewind(&self) -> Result<(), Error> {
        if self.flaw == Flaw::NeverRewinds { Ok(()) } else { self.inner.rewind().await }
    }
    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        if self.flaw == Flaw::NeverPauses { Ok(()) } else { self.inner.pause(from, resume_after).await }
    }
    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        if self.flaw == Flaw::ReportsNoLag { Ok(Vec::new()) } else { self.inner.lag().await }
    }
}
