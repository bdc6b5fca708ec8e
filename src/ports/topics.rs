//! A look into topics for operators: what there is, and what stands where. Reading acknowledges nothing.
use async_trait::async_trait;

use crate::error::Error;
use crate::source::Delivery;

/// A topic as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Its full name.
    pub name: String,
    /// Per partition: the first offset still kept, and the next to be written.
    pub partitions: Vec<(u64, u64)>,
}

/// Topics to look into.
#[async_trait]
pub trait TopicReader: Send + Sync {
    /// Every topic, by name.
    async fn list(&self) -> Result<Vec<TopicView>, Error>;

    /// At most `limit` committed records of one partition, from `offset` on (or from the first that is still kept).
    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<Delivery>, Error>;
}
