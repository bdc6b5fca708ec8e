//! `TopicReader`: a look into the installation's topics, committed records only.
use async_trait::async_trait;
use ports::Error;
use ports::source::Delivery;
use ports::topics::{TopicReader, TopicView};

use crate::look::Ask;
use crate::open::Kafka;

#[async_trait]
impl TopicReader for Kafka {
    async fn list(&self) -> Result<Vec<TopicView>, Error> {
        self.inner.topics()?.ask(|answer| Ask::List { answer }).await
    }

    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<Delivery>, Error> {
        let topic = topic.to_owned();
        self.inner.topics()?.ask(|answer| Ask::Read { topic, partition, offset, limit, answer }).await
    }
}
