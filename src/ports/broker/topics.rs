//! Reads topics for operators: names, partitions, records. Reading acknowledges nothing.
use std::ops::Range;

use async_trait::async_trait;

use super::consumer_groups::ConsumerRecord;
use crate::error::Error;

/// A topic and its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Full name of the topic.
    pub name: String,
    /// For each partition, the offsets that it keeps: from the first one up to, and without, the next one to be written.
    pub partitions: Vec<Range<u64>>,
}

/// Read access to topics outside any consumer group.
#[async_trait]
pub trait TopicReader: Send + Sync {
    /// Lists every topic in name order.
    async fn list(&self) -> Result<Vec<TopicView>, Error>;

    /// Reads at most `limit` committed records of one partition, from `offset` on (or from the first that is kept).
    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<ConsumerRecord>, Error>;

    /// Reads the offset at which a consumer group continues in each partition of a topic; `None` where it has acknowledged nothing.
    async fn group_offsets(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error>;
}
