//! GroupClient: the consumer groups' port as one process has it.
use std::sync::Arc;

use async_trait::async_trait;
use kit::clock::TokioClock;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerGroups, GroupMember};

use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::kafka::groups::coordinator::partitions_of;
use crate::cluster::kafka::groups::member::Member;
use crate::cluster::network::Link;

/// The connections of one process to the brokers and the coordinator.
pub struct GroupClient {
    kafka: SimulatedKafka,
    link: Link,
    clock: Arc<TokioClock>,
}

impl GroupClient {
    /// The client of a new process.
    pub fn new(kafka: SimulatedKafka, link: Link, clock: Arc<TokioClock>) -> Self {
        Self { kafka, link, clock }
    }
}

#[async_trait]
impl ConsumerGroups for GroupClient {
    async fn join(&self, group: &str, topics: &[String], _: u32, _: u32) -> Result<Arc<dyn GroupMember>, Error> {
        let topics = topics.iter().map(|topic| topic.as_str().into()).collect();
        Ok(Arc::new(Member::start(self.kafka.clone(), self.link.clone(), Arc::clone(&self.clock), group, topics)))
    }

    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        let (kafka, group) = (self.kafka.clone(), group.to_owned());
        let topics: Vec<Arc<str>> = topics.iter().map(|topic| topic.as_str().into()).collect();
        let begin = async move {
            let ends = partitions_of(&topics).map(|one| (one.clone(), kafka.end(&one))).collect();
            kafka.coordinator().begin_at(&group, ends);
        };
        self.link.call("begin_at_end", begin).await
    }

    fn reassigns_partitions(&self) -> bool {
        true
    }
}
