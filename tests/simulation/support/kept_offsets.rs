//! KeptOffsets: consumer groups that record each group for which `keep_offsets` was called.
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerGroups, GroupMember};

/// Forwards every call to the real groups.
pub struct KeptOffsets {
    /// The groups without the record.
    pub inner: Arc<dyn ConsumerGroups>,
    /// The groups whose offsets were kept, in the order of the calls.
    pub kept: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl ConsumerGroups for KeptOffsets {
    async fn join(&self, group: &str, topics: &[String], number: u32, of: u32) -> Result<Arc<dyn GroupMember>, Error> {
        self.inner.join(group, topics, number, of).await
    }

    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.begin_at_end(group, topics).await
    }

    async fn keep_offsets(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.kept.lock().push(group.to_owned());
        self.inner.keep_offsets(group, topics).await
    }

    fn reassigns_partitions(&self) -> bool {
        self.inner.reassigns_partitions()
    }
}
