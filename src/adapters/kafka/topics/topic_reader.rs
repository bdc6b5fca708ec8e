//! `TopicReader`: lists the installation's topics and reads their committed records.
use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::{TopicReader, TopicView};

use crate::adapter::Kafka;
use crate::topics::query_thread::TopicQuery;

#[async_trait]
impl TopicReader for Kafka {
    async fn list(&self) -> Result<Vec<TopicView>, Error> {
        self.inner.topic_queries()?.request(|reply| TopicQuery::List { reply }).await
    }

    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<ConsumerRecord>, Error> {
        let topic = topic.to_owned();
        let queries = self.inner.topic_queries()?;
        queries.request(|reply| TopicQuery::Read { topic, partition, offset, limit, reply }).await
    }

    async fn group_offsets(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error> {
        let (group, topic) = (group.to_owned(), topic.to_owned());
        self.inner.topic_queries()?.request(|reply| TopicQuery::GroupOffsets { group, topic, reply }).await
    }
}
